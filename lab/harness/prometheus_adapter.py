"""The real prometheus-adapter for custom and external metrics; nothing registers it with the aggregator.

with PrometheusAdapter(cluster, prometheus.url, series="orders", external="jobs") as other:
    ...
"""

import yaml

from lab.harness import binaries, objects
from lab.harness.client import Client
from lab.harness.control_plane import ControlPlane
from lab.harness.processes import Component, Server, free_ports

LOOPBACK = "127.0.0.1"
NAMESPACE, SERVICE = "monitoring", "prometheus-adapter"


class PrometheusAdapter(Server):
    """Serves one series with the labels `namespace` and `pod` on pods and namespaces, and one as an External metric.

    Both keep their own names. It lists the series again in each `relist`.
    """

    def __init__(self, cluster: ControlPlane, prometheus: str, series: str, external: str, relist: str = "1s") -> None:
        self.cluster = cluster
        [self.port] = free_ports(1)
        rule = {
            "seriesQuery": f'{series}{{namespace!="",pod!=""}}',
            "resources": {"overrides": {"namespace": {"resource": "namespace"}, "pod": {"resource": "pod"}}},
            "metricsQuery": "sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)",
        }
        external_rule = {
            "seriesQuery": f'{external}{{namespace!=""}}',
            "resources": {"overrides": {"namespace": {"resource": "namespace"}}},
            "metricsQuery": "sum(<<.Series>>{<<.LabelMatchers>>})",
        }
        rules = cluster.folder / "prometheus-adapter.yaml"
        rules.write_text(yaml.safe_dump({"rules": [rule], "externalRules": [external_rule]}))
        kubeconfig = cluster.kubeconfig
        hosts = [LOOPBACK, "localhost", f"{SERVICE}.{NAMESPACE}.svc"]
        serving = cluster.pki.cluster.issue(SERVICE, hosts=hosts)
        flags = {
            "secure-port": self.port,
            "bind-address": LOOPBACK,
            "tls-cert-file": serving.cert_file,
            "tls-private-key-file": serving.key_file,
            "authentication-kubeconfig": kubeconfig,
            "authorization-kubeconfig": kubeconfig,
            "lister-kubeconfig": kubeconfig,
            "prometheus-url": prometheus,
            "metrics-relist-interval": relist,
            "metrics-max-age": "1m",
            "config": rules,
        }
        self.component = Component(
            "prometheus-adapter",
            [binaries.path_of("prometheus-adapter"), *(f"--{name}={value}" for name, value in flags.items())],
            cluster.folder / "prometheus-adapter.log",
            ready=lambda: self._direct.raw("/readyz", timeout=3).status == 200,
        )
        self._direct: Client = cluster.anonymous(self.port)

    @property
    def url(self) -> str:
        """Where it serves; its certificate is the cluster CA's."""
        return f"https://localhost:{self.port}"

    def start(self) -> None:
        """Makes its Service, starts it and waits until it is ready; it lists the series a second later."""
        self.cluster.client.apply(objects.namespace(NAMESPACE))
        self.cluster.client.apply(objects.external_service(SERVICE, NAMESPACE, self.port))
        self.component.start()
        self.cluster.watched.append(self.component)
        self.component.wait_ready(60)

    def stop(self) -> None:
        self.component.kill()
        if self.component in self.cluster.watched:
            self.cluster.watched.remove(self.component)
