package ingress

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/yaml"

	"github.com/kemudi/kemudi/internal/api/networking"
	"github.com/kemudi/kemudi/internal/edge/route"
	"github.com/kemudi/kemudi/internal/trace"
)

// world is what there is.
type world struct {
	classes  map[string]*networkingv1.IngressClass
	services map[string]*corev1.Service
	slices   map[string][]*discoveryv1.EndpointSlice
	secrets  map[string]*corev1.Secret
}

var _ Objects = (*world)(nil)

func newWorld() *world {
	return &world{map[string]*networkingv1.IngressClass{}, map[string]*corev1.Service{}, map[string][]*discoveryv1.EndpointSlice{}, map[string]*corev1.Secret{}}
}

func (w *world) Class(name string) *networkingv1.IngressClass { return w.classes[name] }
func (w *world) Default() *networkingv1.IngressClass {
	return networking.DefaultClass(slices.Collect(maps.Values(w.classes)))
}
func (w *world) Service(ns, name string) *corev1.Service             { return w.services[ns+"/"+name] }
func (w *world) Slices(ns, name string) []*discoveryv1.EndpointSlice { return w.slices[ns+"/"+name] }
func (w *world) Secret(ns, name string) *corev1.Secret               { return w.secrets[ns+"/"+name] }

func parse[T any](t testing.TB, text string) *T {
	t.Helper()
	var obj T
	if err := yaml.UnmarshalStrict([]byte(text), &obj); err != nil {
		t.Fatal(err)
	}
	return &obj
}

// web adds a service of namespace team with endpoints.
func (w *world) web(t testing.TB, name string, endpoints string) {
	t.Helper()
	w.services["team/"+name] = parse[corev1.Service](t, "metadata: {namespace: team, name: "+name+"}\nspec: {ports: [{name: http, port: 80, targetPort: 8080}, {name: dns, port: 53, protocol: UDP}]}")
	w.slices["team/"+name] = []*discoveryv1.EndpointSlice{parse[discoveryv1.EndpointSlice](t, "metadata: {namespace: team, name: "+name+"-x}\naddressType: IPv4\nports: [{name: http, port: 8080}, {name: other, port: 9}]\nendpoints: ["+endpoints+"]")}
}

func show(t testing.TB, v any) string {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func (c *Compiled) problems() string {
	var list []string
	for _, p := range c.Problems {
		list = append(list, p.Reason+": "+p.Message)
	}
	return strings.Join(list, "\n")
}

// pair makes a certificate and its key, in PEM.
func pair(t testing.TB) (chain, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"a.com"}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8})
}

const ready, gone, ending = "{addresses: [10.0.0.%d]}", "{addresses: [10.0.0.%d], conditions: {ready: false}}", "{addresses: [10.0.0.%d], conditions: {ready: false, serving: true, terminating: true}}"

func TestEndpointsAreThoseThatAreReady(t *testing.T) {
	for endpoints, want := range map[string][]string{
		"":                                   nil,
		fmt.Sprintf(ready+", "+ready, 2, 1):  {"10.0.0.1:8080", "10.0.0.2:8080"},
		fmt.Sprintf(ready+", "+gone, 1, 2):   {"10.0.0.1:8080"},
		fmt.Sprintf(ready+", "+ending, 1, 2): {"10.0.0.1:8080"},
		fmt.Sprintf(gone+", "+ending, 1, 2):  {"10.0.0.2:8080"},
		fmt.Sprintf(ready+", "+ready, 1, 1):  {"10.0.0.1:8080"},
	} {
		w := newWorld()
		w.web(t, "web", endpoints)
		for _, port := range []networkingv1.ServiceBackendPort{{Number: 80}, {Name: "http"}} {
			if got := Endpoints(Upstream{"team", "web", port, false}, w); !slices.Equal(got, want) {
				t.Errorf("port %v of %s: got %v, want %v", port, endpoints, got, want)
			}
		}
		for _, port := range []networkingv1.ServiceBackendPort{{Number: 81}, {Name: "other"}, {Number: 53}} {
			trace.Proves(t, "ING-006")
			if got := Endpoints(Upstream{"team", "web", port, false}, w); got != nil {
				t.Errorf("port %v: got %v, want none", port, got)
			}
		}
	}
}

func TestEndpointsAreOfTheFirstFamilyOfTheService(t *testing.T) {
	w := newWorld()
	w.web(t, "web", fmt.Sprintf(ready, 1))
	six := parse[discoveryv1.EndpointSlice](t, "addressType: IPv6\nports: [{name: http, port: 8080}]\nendpoints: [{addresses: ['fd00::1']}]")
	w.slices["team/web"] = append(w.slices["team/web"], six)
	for family, want := range map[corev1.IPFamily]string{corev1.IPv4Protocol: "10.0.0.1:8080", corev1.IPv6Protocol: "[fd00::1]:8080"} {
		w.services["team/web"].Spec.IPFamilies = []corev1.IPFamily{family}
		if got := Endpoints(Upstream{"team", "web", networkingv1.ServiceBackendPort{Number: 80}, false}, w); !slices.Equal(got, []string{want}) {
			t.Errorf("%s: got %v, want %s", family, got, want)
		}
	}
}

func TestIngressesBecomeSites(t *testing.T) {
	w := newWorld()
	w.web(t, "web", "")
	chain, key := pair(t)
	w.secrets["team/whole"] = &corev1.Secret{Data: map[string][]byte{"tls.crt": chain, "tls.key": key}}
	w.secrets["team/keyless"] = &corev1.Secret{Data: map[string][]byte{"tls.crt": chain}}
	w.services["team/elsewhere"] = parse[corev1.Service](t, "spec: {type: ExternalName, externalName: example.com}")
	c := Compile(parse[networkingv1.Ingress](t, `
metadata: {namespace: team, name: i, creationTimestamp: "2026-01-01T00:00:00Z"}
spec:
  defaultBackend: {service: {name: web, port: {name: http}}}
  tls: [{hosts: [A.com], secretName: missing}, {hosts: [b.com]}, {hosts: [c.com], secretName: keyless}, {hosts: [d.com], secretName: whole}]
  rules:
  - host: A.com
    http: {paths: [{path: /x, pathType: Exact, backend: {service: {name: web, port: {number: 80}}}}, {path: /y, pathType: ImplementationSpecific, backend: {service: {name: gone, port: {number: 80}}}}]}
  - http: {paths: [{path: /z, pathType: Prefix, backend: {service: {name: web, port: {number: 81}}}}, {path: /e, pathType: Prefix, backend: {service: {name: elsewhere, port: {number: 80}}}}, {path: /o, pathType: Prefix, backend: {resource: {kind: Bucket, name: b}}}]}
  - host: "*.c.com"`), w)
	const want = `{"key":"team/i","created":1767225600,"rules":[` +
		`{"host":"a.com","path":"/x","type":"exact","upstream":"team/web:80"},{"host":"a.com","path":"/y","type":"prefix","upstream":"team/gone:80"},` +
		`{"path":"/z","type":"prefix","upstream":"team/web:81"},{"path":"/e","type":"prefix","upstream":"team/elsewhere:80"},{"path":"/o","type":"prefix"},` +
		`{"host":"*.c.com","type":"prefix","upstream":"team/web:http"}],"default":"team/web:http","tls":[{"hosts":["a.com"]},{"hosts":["b.com"]},{"hosts":["c.com"]},{"hosts":["d.com"],"certificate":"team/whole"}]}`
	if got := show(t, c.Site); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	const problems = `BackendNotFound: service "gone" of path "/y" of host "A.com" does not exist
BackendNotFound: service "web" of path "/z" of host "" has no port 81
BackendNotFound: service "elsewhere" of path "/e" of host "" is of type ExternalName, to which nothing is forwarded
BackendNotFound: the backend of path "/o" of host "" is not a service: it is answered by 503
BadCertificate: secret "missing" of spec.tls[0] does not exist
BadCertificate: secret "keyless" of spec.tls[2]: it has not both tls.crt and tls.key`
	trace.Proves(t, "ING-036")
	if got := c.problems(); got != problems {
		t.Errorf("got\n%s\nwant\n%s", got, problems)
	}
}

func TestChangesAreOfWhatIsDifferent(t *testing.T) {
	w := newWorld()
	w.web(t, "web", fmt.Sprintf(ready, 1))
	w.web(t, "idle", fmt.Sprintf(ready, 9))
	ours := func(name, service string) *networkingv1.Ingress {
		return parse[networkingv1.Ingress](t, "metadata: {namespace: team, name: "+name+"}\nspec: {ingressClassName: kemudi, tls: [{secretName: tls}], defaultBackend: {service: {name: "+service+", port: {number: 80}}}}")
	}
	chain, secret := pair(t)
	m := NewModel(w)
	commit := func() string {
		c := m.Commit()
		var list []string
		if c.Whole {
			list = append(list, "whole")
		}
		for key, s := range c.Sites {
			list = append(list, fmt.Sprint("site ", key, " ", s != nil))
		}
		for key, u := range c.Upstreams {
			if u == nil {
				list = append(list, "upstream "+key+" gone")
			} else {
				list = append(list, fmt.Sprint("upstream ", key, " ", u.Endpoints))
			}
		}
		for key, c := range c.Certificates {
			list = append(list, fmt.Sprint("certificate ", key, " ", c != nil))
		}
		slices.Sort(list)
		return strings.Join(list, "; ")
	}
	step := func(what, want string) {
		t.Helper()
		if got := commit(); got != want {
			t.Errorf("%s: got %q, want %q", what, got, want)
		}
	}
	m.Set("team/a", ours("a", "web"))
	step("the first", "site team/a true; upstream team/web:80 [10.0.0.1:8080]; whole")
	if got := m.Secrets(); !slices.Equal(got, []string{"team/tls"}) {
		t.Errorf("got secrets %v, want team/tls", got)
	}
	step("nothing", "")
	m.Set("team/b", ours("b", "web"))
	step("another one of the same service", "site team/b true")
	w.web(t, "web", fmt.Sprintf(ready+", "+ready, 1, 2))
	m.Service("team/web")
	m.Service("team/idle")
	step("an endpoint", "upstream team/web:80 [10.0.0.1:8080 10.0.0.2:8080]")
	m.Service("team/web")
	step("no difference", "")
	w.secrets["team/tls"] = &corev1.Secret{Data: map[string][]byte{"tls.crt": chain, "tls.key": secret}}
	m.Secret("team/tls")
	m.Secret("team/other")
	step("a certificate", "certificate team/tls true; site team/a true; site team/b true")
	w.secrets["team/tls"] = &corev1.Secret{Data: map[string][]byte{"tls.crt": []byte("x"), "tls.key": secret}}
	m.Secret("team/tls")
	step("a broken certificate", "certificate team/tls false; site team/a true; site team/b true")
	m.Set("team/b", ours("b", "idle"))
	step("another service", "site team/b true; upstream team/idle:80 [10.0.0.9:8080]")
	w.classes["kemudi"] = parse[networkingv1.IngressClass](t, "spec: {controller: example.com/other}")
	m.Classes()
	step("the class is another's", "site team/a false; site team/b false; upstream team/idle:80 gone; upstream team/web:80 gone")
	delete(w.classes, "kemudi")
	m.Classes()
	step("and ours again", "site team/a true; site team/b true; upstream team/idle:80 [10.0.0.9:8080]; upstream team/web:80 [10.0.0.1:8080 10.0.0.2:8080]")
	m.Set("team/b", nil)
	step("one goes", "site team/b false; upstream team/idle:80 gone")
	m.Forget()
	step("an edge that knows nothing", "site team/a true; upstream team/web:80 [10.0.0.1:8080 10.0.0.2:8080]; whole")
}

// A table that was changed step by step is the one that is made at once.
func TestTablesByChangesAreThoseMadeAtOnce(t *testing.T) {
	w := newWorld()
	m := NewModel(w)
	table := (*route.Table)(nil)
	for n := range 40 {
		name := fmt.Sprintf("s%d", n%7)
		w.web(t, name, fmt.Sprintf(ready, n))
		m.Service("team/" + name)
		i := parse[networkingv1.Ingress](t, fmt.Sprintf("metadata: {namespace: team, name: i%d}\nspec: {ingressClassName: nginx, rules: [{host: h%d.com, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: %s, port: {number: 80}}}}]}}]}", n%5, n%3, name))
		m.Set("team/"+i.Name, i)
		if n%4 == 0 {
			m.Set(fmt.Sprintf("team/i%d", (n+2)%5), nil)
		}
		table = table.With(m.Commit())
		again := NewModel(w)
		for key, i := range m.all {
			again.Set(key, i)
		}
		fresh := (*route.Table)(nil).With(again.Commit())
		for h := range 3 {
			host := fmt.Sprintf("h%d.com", h)
			a, b := table.Find(host, "/", nil), fresh.Find(host, "/", nil)
			if (a == nil) != (b == nil) || a != nil && (a.Upstream != b.Upstream || show(t, table.Upstream(a.Upstream)) != show(t, fresh.Upstream(b.Upstream))) {
				t.Fatalf("step %d, %s: got %v, want %v", n, host, a, b)
			}
		}
	}
}
