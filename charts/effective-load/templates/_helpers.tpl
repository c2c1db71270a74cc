{{- /* Names are fixed: a cluster has one server for custom.metrics.k8s.io, so one release of this chart. */}}

{{- define "effective-load.labels" -}}
{{- with .Values.commonLabels }}
{{- toYaml . }}
{{ end }}
{{- ""}}app.kubernetes.io/name: effective-load
app.kubernetes.io/part-of: effective-load
{{- end }}

{{- /* The annotations of every object that is written by hand; nothing where there are none. */}}
{{- define "effective-load.annotations" -}}
{{- with .Values.commonAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- /* Where the rights that need no cluster are bound, as JSON: "" is the cluster. */}}
{{- define "effective-load.boundNamespaces" -}}
{{- $namespaces := list "" }}
{{- if .Values.rbac.namespaced }}
{{- $namespaces = (.Values.settings.kubernetes | default dict).namespaces }}
{{- if not $namespaces }}
{{- fail "rbac.namespaced is true and settings.kubernetes.namespaces is empty: name the namespaces that are watched" }}
{{- end }}
{{- end }}
{{- $namespaces | toJson }}
{{- end }}

{{- define "effective-load.image" -}}
{{- with .Values.image }}
{{- if .digest }}{{ .repository }}@{{ .digest }}{{ else }}{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end }}
{{- end }}

{{- /* The Secret with the serving certificate, where the server does not make its own. */}}
{{- define "effective-load.servingSecret" -}}
{{- if eq .Values.tls.source "Secret" -}}
{{ required "tls.source Secret needs tls.secret, the name of an existing Secret" .Values.tls.secret }}
{{- else -}}
effective-load-serving
{{- end }}
{{- end }}

{{- /* The settings file: the values, with what the chart decides. */}}
{{- define "effective-load.settings" -}}
{{- $settings := deepCopy .Values.settings }}
{{- if ne .Values.tls.source "SelfSigned" }}
{{- $folder := "/etc/effective-load/serving" }}
{{- $files := dict "certFile" (print $folder "/tls.crt") "keyFile" (print $folder "/tls.key") }}
{{- $tls := merge (dict "mode" "Files" "injectCABundle" false) $files }}
{{- $settings = mergeOverwrite $settings (dict "server" (dict "tls" $tls)) }}
{{- end }}
{{- toYaml $settings }}
{{- end }}

{{- /* The settings that are read at the start alone: another checksum of them replaces the pods. */}}
{{- define "effective-load.settingsAtStart" -}}
{{- $settings := include "effective-load.settings" . | fromYaml }}
{{- $companion := pick $settings.companion "namespace" "lease" "leaseSeconds" }}
{{- $server := omit $settings.server "externalMetrics" }}
{{- pick $settings "telemetry" "kubernetes" "upstreams" | merge (dict "companion" $companion "server" $server) | toJson }}
{{- end }}

{{- /* What both Deployments say of themselves. Takes (list ROOT NAME), where NAME is server or companion. */}}
{{- define "effective-load.deployment" -}}
{{- $root := index . 0 }}
{{- $component := index . 1 }}
{{- $own := index $root.Values $component }}
replicas: {{ $own.replicas }}
revisionHistoryLimit: 3
strategy:
  rollingUpdate:
    maxSurge: 1
    maxUnavailable: 0
selector:
  matchLabels:
    app.kubernetes.io/name: effective-load
    app.kubernetes.io/component: {{ $component }}
{{- end }}

{{- /* The labels and annotations of the pods of both. */}}
{{- define "effective-load.podMetadata" -}}
{{- $root := index . 0 }}
{{- $component := index . 1 }}
{{- $own := index $root.Values $component }}
labels:
  {{- with $own.podLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
  {{- include "effective-load.labels" $root | nindent 2 }}
  app.kubernetes.io/component: {{ $component }}
annotations:
  {{- with $own.podAnnotations }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
  effective-load.io/settings-at-start: {{ include "effective-load.settingsAtStart" $root | sha256sum }}
{{- end }}

{{- /* Where and as whom the pods of both run. */}}
{{- define "effective-load.podSpec" -}}
{{- $root := index . 0 }}
{{- $component := index . 1 }}
{{- $own := index $root.Values $component }}
automountServiceAccountToken: true
enableServiceLinks: false
{{- with $own.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
terminationGracePeriodSeconds: 30
{{- with $root.Values.image.pullSecrets }}
imagePullSecrets:
{{- range . }}
- name: {{ . }}
{{- end }}
{{- end }}
{{- with $own.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $own.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
affinity:
{{- with $own.affinity }}
  {{- toYaml . | nindent 2 }}
{{- else }}
  podAntiAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
    - weight: 100
      podAffinityTerm:
        topologyKey: kubernetes.io/hostname
        labelSelector:
          matchLabels:
            app.kubernetes.io/name: effective-load
            app.kubernetes.io/component: {{ $component }}
{{- end }}
topologySpreadConstraints:
- maxSkew: 1
  topologyKey: topology.kubernetes.io/zone
  whenUnsatisfiable: ScheduleAnyway
  labelSelector:
    matchLabels:
      app.kubernetes.io/name: effective-load
      app.kubernetes.io/component: {{ $component }}
  matchLabelKeys: [pod-template-hash]
{{- if $own.hostNetwork }}
hostNetwork: true
dnsPolicy: ClusterFirstWithHostNet
{{- end }}
{{- with $own.dnsConfig }}
dnsConfig:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  runAsNonRoot: true
  {{- with $root.Values.podSecurityContext }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
  seccompProfile:
    type: RuntimeDefault
{{- end }}

{{- /* What the containers of both have in common. */}}
{{- define "effective-load.container" -}}
{{- $root := index . 0 }}
{{- $component := index . 1 }}
{{- $own := index $root.Values $component }}
image: {{ include "effective-load.image" $root | quote }}
imagePullPolicy: {{ $root.Values.image.pullPolicy }}
env:
- name: POD_NAMESPACE
  valueFrom:
    fieldRef:
      fieldPath: metadata.namespace
{{- with $own.extraEnv }}
{{ toYaml . }}
{{- end }}
resources:
  {{- toYaml $own.resources | nindent 2 }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
{{- end }}

