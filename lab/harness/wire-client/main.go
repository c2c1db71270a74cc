// Asks a metrics API exactly as the HorizontalPodAutoscaler's controller does, with its own client library, and prints
// what that library made of the answer as JSON.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/metrics/pkg/apis/custom_metrics/v1beta2"
	"k8s.io/metrics/pkg/client/custom_metrics"
	"k8s.io/metrics/pkg/client/external_metrics"
)

const usage = `usage: wire [flags] pods NAMESPACE SELECTOR METRIC [METRICSELECTOR]
       wire [flags] object NAMESPACE KIND.GROUP NAME METRIC [METRICSELECTOR]
       wire [flags] objects NAMESPACE KIND.GROUP SELECTOR METRIC [METRICSELECTOR]
       wire [flags] external NAMESPACE METRIC [SELECTOR]
A NAMESPACE of "" asks for objects outside of namespaces.
`

// item is one value, its quantity both as the text that came and as the number that the HPA computes with.
type item struct {
	Kind          string            `json:"kind,omitempty"`
	APIVersion    string            `json:"apiVersion,omitempty"`
	Namespace     string            `json:"namespace,omitempty"`
	Name          string            `json:"name,omitempty"`
	Metric        string            `json:"metric"`
	Selector      string            `json:"selector,omitempty"`
	Labels        map[string]string `json:"labels,omitempty"`
	Value         string            `json:"value"`
	Milli         int64             `json:"milli"`
	Timestamp     string            `json:"timestamp"`
	WindowSeconds *int64            `json:"windowSeconds"`
}

type answer struct {
	Items  []item `json:"items"`
	Error  string `json:"error,omitempty"`
	Code   int32  `json:"code,omitempty"`
	Reason string `json:"reason,omitempty"`
}

func main() {
	kubeconfig := flag.String("kubeconfig", "", "path of the kubeconfig")
	version := flag.String("version", "preferred", "of custom.metrics.k8s.io: v1beta2, v1beta1, or preferred (by discovery, as the HPA)")
	plain := flag.Bool("json", false, "ask for JSON; without it for protobuf first, as the HPA does")
	flag.Usage = func() { fmt.Fprint(os.Stderr, usage); flag.PrintDefaults() }
	flag.Parse()
	items, err := run(*kubeconfig, *version, *plain, flag.Args())
	if errors.Is(err, errUsage) {
		flag.Usage()
		os.Exit(2)
	}
	encoder := json.NewEncoder(os.Stdout)
	encoder.SetIndent("", " ")
	if err := encoder.Encode(report(items, err)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

var errUsage = errors.New("usage")

func report(items []item, err error) answer {
	if err == nil {
		return answer{Items: items}
	}
	told := answer{Items: []item{}, Error: err.Error()}
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		told.Code, told.Reason = status.Status().Code, string(status.Status().Reason)
	}
	return told
}

func run(kubeconfig, version string, plain bool, args []string) ([]item, error) {
	if len(args) < 3 {
		return nil, errUsage
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	if !plain {
		config.ContentType = "application/vnd.kubernetes.protobuf"
	}
	if args[0] == "external" {
		return external(config, args[1:])
	}
	client, err := customClient(config, version)
	if err != nil {
		return nil, err
	}
	switch {
	case args[0] == "pods" && len(args) >= 4:
		return list(client, args[1], schema.GroupKind{Kind: "Pod"}, args[2:])
	case args[0] == "objects" && len(args) >= 5:
		return list(client, args[1], schema.ParseGroupKind(args[2]), args[3:])
	case args[0] == "object" && len(args) >= 5:
		return one(client, args[1], schema.ParseGroupKind(args[2]), args[3:])
	}
	return nil, errUsage
}

// customClient is put together as in cmd/kube-controller-manager/app/autoscaling.go.
func customClient(config *rest.Config, version string) (custom_metrics.CustomMetricsClient, error) {
	found, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, err
	}
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(found))
	if version == "preferred" {
		return custom_metrics.NewForConfig(config, mapper, custom_metrics.NewAvailableAPIsGetter(found)), nil
	}
	return custom_metrics.NewForVersionForConfig(config, mapper, schema.GroupVersion{Group: "custom.metrics.k8s.io", Version: version})
}

func at(client custom_metrics.CustomMetricsClient, namespace string) custom_metrics.MetricsInterface {
	if namespace == "" {
		return client.RootScopedMetrics()
	}
	return client.NamespacedMetrics(namespace)
}

// parsed reads the selector at the given place, everything where there is none.
func parsed(args []string, place int) (labels.Selector, error) {
	if len(args) <= place {
		return labels.Everything(), nil
	}
	return labels.Parse(args[place])
}

func list(client custom_metrics.CustomMetricsClient, namespace string, kind schema.GroupKind, args []string) ([]item, error) {
	selector, err := labels.Parse(args[0])
	if err != nil {
		return nil, err
	}
	metricSelector, err := parsed(args, 2)
	if err != nil {
		return nil, err
	}
	values, err := at(client, namespace).GetForObjects(kind, selector, args[1], metricSelector)
	if err != nil {
		return nil, err
	}
	items := make([]item, 0, len(values.Items))
	for _, value := range values.Items {
		items = append(items, shown(value))
	}
	return items, nil
}

func one(client custom_metrics.CustomMetricsClient, namespace string, kind schema.GroupKind, args []string) ([]item, error) {
	metricSelector, err := parsed(args, 2)
	if err != nil {
		return nil, err
	}
	value, err := at(client, namespace).GetForObject(kind, args[0], args[1], metricSelector)
	if err != nil {
		return nil, err
	}
	return []item{shown(*value)}, nil
}

func external(config *rest.Config, args []string) ([]item, error) {
	client, err := external_metrics.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	selector, err := parsed(args, 2)
	if err != nil {
		return nil, err
	}
	values, err := client.NamespacedMetrics(args[0]).List(args[1], selector)
	if err != nil {
		return nil, err
	}
	items := make([]item, 0, len(values.Items))
	for _, value := range values.Items {
		next := item{Metric: value.MetricName, Labels: value.MetricLabels}
		items = append(items, measured(next, value.Value, value.Timestamp, value.WindowSeconds))
	}
	return items, nil
}

func shown(value v1beta2.MetricValue) item {
	object := value.DescribedObject
	next := item{
		Kind: object.Kind, APIVersion: object.APIVersion, Namespace: object.Namespace, Name: object.Name, Metric: value.Metric.Name,
	}
	if value.Metric.Selector != nil {
		next.Selector = metav1.FormatLabelSelector(value.Metric.Selector)
	}
	return measured(next, value.Value, value.Timestamp, value.WindowSeconds)
}

func measured(next item, value resource.Quantity, at metav1.Time, window *int64) item {
	next.Value, next.Milli, next.WindowSeconds = value.String(), value.MilliValue(), window
	next.Timestamp = at.UTC().Format(time.RFC3339)
	return next
}
