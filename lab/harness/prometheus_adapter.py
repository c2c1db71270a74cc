"""The real prometheus-adapter for custom.metrics.k8s.io; nothing registers it with the aggregator.

with PrometheusAdapter(cluster, prometheus.url, series="orders") as other:
    ...
"""

import yaml

from lab.harness import binaries
from lab.harness.client import Client
from lab.harness.control_plane import ControlPlane
from lab.harness.processes import Component, Server, free_ports

LOOPBACK = "127.0.0.1"


class PrometheusAdapter(Server):
    """Serves one series with the labels `namespace` and `pod` on pods and namespaces, under its own name.

    It lists the series again every second.
    """

    def __init__(self, cluster: ControlPlane, prometheus: str, series: str) -> None:
        self.cluster = cluster
        [self.port] = free_ports(1)
        rule = {
            "seriesQuery": f'{series}{{namespace!="",pod!=""}}',
            "resources": {"overrides": {"namespace": {"resource": "namespace"}, "pod": {"resource": "pod"}}},
            "metricsQuery": "sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)",
        }
        rules = cluster.folder / "prometheus-adapter.yaml"
        rules.write_text(yaml.safe_dump({"rules": [rule]}))
        kubeconfig = cluster.kubeconfig
        serving = cluster.pki.serving
        flags = {
            "secure-port": self.port,
            "bind-address": LOOPBACK,
            "tls-cert-file": serving.cert_file,
            "tls-private-key-file": serving.key_file,
            "authentication-kubeconfig": kubeconfig,
            "authorization-kubeconfig": kubeconfig,
            "lister-kubeconfig": kubeconfig,
            "prometheus-url": prometheus,
            "metrics-relist-interval": "1s",
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
        """Starts it and waits until it is ready; it lists the series a second later."""
        self.component.start()
        self.cluster.watched.append(self.component)
        self.component.wait_ready(60)

    def stop(self) -> None:
        self.component.kill()
        if self.component in self.cluster.watched:
            self.cluster.watched.remove(self.component)
