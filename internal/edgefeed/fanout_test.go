package edgefeed

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/kemudi/kemudi/internal/trace"
)

// TestOneHostLeadsToSeveralServices is the fan-out of the documents, and what becomes of it when somebody
// adds a host.
func TestOneHostLeadsToSeveralServices(t *testing.T) {
	b := newBed(t)
	for name, number := range map[string]string{"service1": "4200", "service2": "8080", "s2": "80"} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, name, " ", r.URL.Path) }))
		t.Cleanup(s.Close)
		_, port, _ := net.SplitHostPort(s.Listener.Addr().String())
		b.api.Put(
			object[corev1.Service](b, "metadata: {namespace: team, name: "+name+"}\nspec: {ports: [{port: "+number+"}]}"),
			object[discoveryv1.EndpointSlice](b, "metadata: {namespace: team, name: "+name+"-x, labels: {kubernetes.io/service-name: "+name+"}}\naddressType: IPv4\nports: [{name: '', port: "+port+"}]\nendpoints: [{addresses: [127.0.0.1]}]"),
		)
	}
	const foo, bar = "{path: /foo, backend: {service: {name: service1, port: {number: 4200}}}}", "{path: /bar, backend: {service: {name: service2, port: {number: 8080}}}}"
	fanout := func(more string) *networkingv1.Ingress {
		return object[networkingv1.Ingress](b, "metadata: {namespace: team, name: simple-fanout-example, annotations: {nginx.ingress.kubernetes.io/rewrite-target: /}}\n"+
			"spec: {ingressClassName: nginx, rules: [{host: foo.bar.com, http: {paths: ["+foo+", "+bar+"]}}"+more+"]}")
	}
	b.api.Put(b.marker(), fanout(""))
	b.start("v1")
	trace.Proves(t, "ING-027")
	b.answers("foo.bar.com/foo", "service1 /")
	b.answers("foo.bar.com/bar", "service2 /")
	b.api.Put(fanout(", {host: bar.baz.com, http: {paths: [{path: /foo, backend: {service: {name: s2, port: {number: 80}}}}]}}"))
	trace.Proves(t, "ING-045")
	b.answers("bar.baz.com/foo", "s2 /")
	b.answers("foo.bar.com/foo", "service1 /")
}
