package balancer

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/yaml"

	"github.com/kemudi/kemudi/internal/edge/route"
	"github.com/kemudi/kemudi/internal/trace"
)

// world is what a model asks for.
type world struct {
	services map[string]*corev1.Service
	secrets  map[string]*corev1.Secret
	slices   []*discoveryv1.EndpointSlice
}

func (w *world) Service(namespace, name string) *corev1.Service {
	return w.services[namespace+"/"+name]
}

func (w *world) Slices(_, service string) (list []*discoveryv1.EndpointSlice) {
	for _, s := range w.slices {
		if s.Labels[discoveryv1.LabelServiceName] == service {
			list = append(list, s)
		}
	}
	return list
}

func (w *world) Secret(namespace, name string) *corev1.Secret {
	return w.secrets[namespace+"/"+name]
}
func (w *world) Class(_ string) *networkingv1.IngressClass { return nil }
func (w *world) Default() *networkingv1.IngressClass       { return nil }

func parse[T any](t *testing.T, text string) *T {
	t.Helper()
	var out T
	if err := yaml.UnmarshalStrict([]byte(text), &out); err != nil {
		t.Fatal(err)
	}
	return &out
}

func balanced(t *testing.T, name, annotations, spec string) *corev1.Service {
	return parse[corev1.Service](t, "metadata: {namespace: team, name: "+name+", annotations: {"+annotations+"}}\n"+
		"spec: {type: LoadBalancer, "+spec+"ports: [{name: web, port: 80, nodePort: 30080, protocol: TCP}, {name: more, port: 81, nodePort: 30081, protocol: TCP}]}\n"+
		"status: {loadBalancer: {ingress: [{ip: 192.0.2.7, ipMode: VIP}, {ip: 192.0.2.8, ipMode: Proxy}]}, conditions: [{type: kemudi.io/Balanced, status: 'True', reason: Balanced}]}")
}

// text is a change as text, a line each.
func text(c *route.Change) string {
	var all []string
	for _, key := range slices.Sorted(maps.Keys(c.Doors)) {
		d := c.Doors[key]
		if d == nil {
			all = append(all, "no door "+key)
			continue
		}
		l := d.Listeners[0]
		all = append(all, fmt.Sprintf("door %s: %d for %d %q, at %v, header %d, sticky %v, certificates %v", key, d.Port, d.Public, l.Mode, d.Relay.Addresses, d.Relay.Header, d.Relay.Sticky, l.Certificates))
	}
	for _, key := range slices.Sorted(maps.Keys(c.Upstreams)) {
		if u := c.Upstreams[key]; u != nil {
			all = append(all, fmt.Sprintf("upstream %s: %v", key, u.Endpoints))
		} else {
			all = append(all, "no upstream "+key)
		}
	}
	return strings.Join(all, "\n")
}

func TestEdgesAreToldOfBalancers(t *testing.T) {
	w := &world{services: map[string]*corev1.Service{}}
	slice := func(nodes ...string) *discoveryv1.EndpointSlice {
		s := parse[discoveryv1.EndpointSlice](t, "metadata: {namespace: team, name: web-1, labels: {kubernetes.io/service-name: web}}\naddressType: IPv4\nports: [{name: web, port: 8080}, {name: more, port: 8081}]")
		for i, n := range nodes {
			s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("10.0.0.%d", i+1)}, NodeName: &n})
		}
		return s
	}
	m := NewModel(w, "n1")
	check := func(what string, want ...string) {
		t.Helper()
		m.Service("team/web")
		var c route.Change
		m.Commit(&c)
		if got := text(&c); got != strings.Join(want, "\n") {
			t.Errorf("%s: got\n%s\nwant\n%s", what, got, strings.Join(want, "\n"))
		}
	}
	const header = "kemudi.io/load-balancer-proxy-protocol: v1"
	w.slices = []*discoveryv1.EndpointSlice{slice("n1", "n2")}
	w.services["team/web"] = balanced(t, "web", "", "")
	check("who asks for nothing")
	w.services["team/web"] = balanced(t, "web", header, "")
	doors := []string{
		`door balancer/team/web:80: 30080 for 80 "bytes", at [192.0.2.7], header 1, sticky false, certificates []`,
		`door balancer/team/web:81: 30081 for 81 "bytes", at [192.0.2.7], header 1, sticky false, certificates []`,
	}
	check("the PROXY protocol", append(doors, "upstream balancer/team/web:80: [10.0.0.1:8080 10.0.0.2:8080]", "upstream balancer/team/web:81: [10.0.0.1:8081 10.0.0.2:8081]")...)
	check("nothing new")
	// L2: without its certificate no connection is taken, and ports without TLS are served.
	w.services["team/web"] = balanced(t, "web", "kemudi.io/load-balancer-certificate: pair, kemudi.io/load-balancer-tls-ports: '80'", "sessionAffinity: ClientIP, ")
	check("a certificate that there is not", `door balancer/team/web:80: 30080 for 80 "terminate", at [192.0.2.7], header 0, sticky true, certificates []`,
		"no door balancer/team/web:81", "no upstream balancer/team/web:81")
	if got := m.Secrets(); !slices.Equal(got, []string{"team/pair"}) {
		t.Errorf("secrets: got %v, want team/pair", got)
	}
	trace.Proves(t, "SVC-151")
	w.services["team/web"] = balanced(t, "web", header, "externalTrafficPolicy: Local, ")
	check("Local", append(doors, "upstream balancer/team/web:80: [10.0.0.1:8080]", "upstream balancer/team/web:81: [10.0.0.1:8081]")...)
	w.slices = []*discoveryv1.EndpointSlice{slice("n2", "n3")}
	anywhere := []string{"upstream balancer/team/web:80: [10.0.0.1:8080 10.0.0.2:8080]", "upstream balancer/team/web:81: [10.0.0.1:8081 10.0.0.2:8081]"}
	check("Local with none here: who is let in may use any", anywhere...)
	m.Forget()
	check("from anew", append(doors, anywhere...)...)
	theirs := balanced(t, "web", header, "")
	theirs.Status.Conditions = nil
	w.services["team/web"] = theirs
	check("another program's", "no door balancer/team/web:80", "no door balancer/team/web:81", "no upstream balancer/team/web:80", "no upstream balancer/team/web:81")
	delete(w.services, "team/web")
	check("gone")
}

// pairOf is a certificate that signs itself, with its key, in PEM.
func pairOf(t *testing.T) (chain, key []byte) {
	t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{"pods.com"}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, public, private)
	if err != nil {
		t.Fatal(err)
	}
	pkcs, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs})
}

// Pods that speak TLS are known as annotations say; where that cannot be had, nothing is sent to them.
func TestPodsOfBalancersAreKnownByTheirCertificates(t *testing.T) {
	w := &world{services: map[string]*corev1.Service{}, secrets: map[string]*corev1.Secret{}}
	chain, key := pairOf(t)
	w.secrets["team/pair"] = &corev1.Secret{Data: map[string][]byte{"tls.crt": chain, "tls.key": key}}
	w.secrets["team/all"] = &corev1.Secret{Data: map[string][]byte{"ca.crt": chain, "tls.crt": chain, "tls.key": key}}
	w.secrets["team/bad"] = &corev1.Secret{Data: map[string][]byte{"ca.crt": []byte("x")}}
	for annotations, want := range map[string]string{
		"": "any",
		"kemudi.io/load-balancer-backend-name: pods.com":                                                    `{"name":"pods.com"}`,
		"kemudi.io/load-balancer-backend-certificate: pair":                                                 `{"name":"","certificate":"balancer/team/web#backend","unknown":true}`,
		"kemudi.io/load-balancer-backend-name: pods.com, kemudi.io/load-balancer-backend-certificate: all":  `{"name":"pods.com","authorities":"CA","certificate":"balancer/team/web#backend"}`,
		"kemudi.io/load-balancer-backend-certificate: all":                                                  "none",
		"kemudi.io/load-balancer-backend-name: pods.com, kemudi.io/load-balancer-backend-certificate: bad":  "none",
		"kemudi.io/load-balancer-backend-name: pods.com, kemudi.io/load-balancer-backend-certificate: gone": "none",
		"kemudi.io/load-balancer-backend-name: Not A Host":                                                  "no door",
	} {
		w.services["team/web"] = balanced(t, "web", strings.Trim("kemudi.io/load-balancer-certificate: pair, kemudi.io/load-balancer-backend-protocol: ssl, "+annotations, ", "), "")
		m := NewModel(w, "n1")
		m.Service("team/web")
		var c route.Change
		m.Commit(&c)
		got := "no door"
		if d := c.Doors["balancer/team/web:80"]; d != nil {
			b := d.Listeners[0].Sites[0].Actions[0].Backends[0]
			switch data, err := json.Marshal(b.Trust); {
			case err != nil:
				t.Fatal(err)
			case b.Upstream == "":
				got = "none"
			case b.Trust == nil:
				got = "any"
			default:
				got = strings.ReplaceAll(string(data), base64.StdEncoding.EncodeToString(chain), "CA")
				if b.Trust.Certificate != "" && c.Certificates[b.Trust.Certificate] == nil {
					t.Errorf("%s: the edge is not told what pods are shown", annotations)
				}
			}
		}
		if got != want {
			t.Errorf("%s: got %s, want %s", annotations, got, want)
		}
		if names := m.Secrets(); strings.Contains(annotations, "backend-certificate: all") && want != "no door" && !slices.Contains(names, "team/all") {
			t.Errorf("%s: its Secrets are %v", annotations, names)
		}
	}
}
