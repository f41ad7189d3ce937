package dns

import (
	"strings"
	"testing"
)

func TestOtherPluginsAreToldWhoAsksForWhat(t *testing.T) {
	t.Parallel()
	r := run(t, shop+`---
kind: Pod
metadata: {namespace: shop, name: client, labels: {app: till}}
spec: {nodeName: n1}
status: {phase: Running, podIP: 127.0.0.1, podIPs: [{ip: 127.0.0.1}]}
`)
	var said []string
	for _, label := range []string{"client-namespace", "client-pod-name", "client-label/app", "kind", "namespace", "service", "endpoint", "port-name", "protocol", "parse-error"} {
		said = append(said, "{{ .Meta `kubernetes/"+label+"` }}")
	}
	told := with("metadata\n template IN TXT cluster.local {\n answer \"{{ .Name }} 60 IN TXT \\\"" + strings.Join(said, "|") + "\\\"\"\n fallthrough\n}\n template IN A example.org {\n answer \"{{ .Name }} 60 IN A 192.0.2.7\"\n}")
	r.corefile(strings.Replace(told, "pods insecure", "pods verified", 1))
	r.soon("www.example.org", "NOERROR", "A 192.0.2.7")
	for name, want := range map[string]string{
		"_http._tcp.web.shop.svc.cluster.local": "shop|client|till|svc|shop|web||http|tcp|",
		"a.pods.shop.svc.cluster.local":         "shop|client|till|svc|shop|pods|a|||",
		"10-244-1-2.shop.pod.cluster.local":     "shop|client|till|pod|shop|10-244-1-2||||",
		"shop.svc.cluster.local":                "shop|client|till|svc|shop|||||",
		"cluster.local":                         "shop|client|till|||||||",
		"a.b.c.web.shop.svc.cluster.local":      "shop|client|till|||||||invalid query name",
		"web.shop.cluster.local":                "shop|client|till|||||||invalid query name",
	} {
		r.expect("TXT", name, "NOERROR", `TXT "`+want+`"`)
	}
}
