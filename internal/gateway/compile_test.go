package gateway

import (
	"cmp"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"maps"
	"math/big"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/yaml"

	"github.com/kemudi/kemudi/internal/edge/route"
	"github.com/kemudi/kemudi/internal/texttest"
)

// world is a cluster as a test has it.
type world struct {
	namespaces map[string]*corev1.Namespace
	services   map[string]*corev1.Service
	secrets    map[string]*corev1.Secret
	configMaps map[string]*corev1.ConfigMap
	objects    Objects
}

func (w *world) Namespace(name string) *corev1.Namespace { return w.namespaces[name] }
func (w *world) Service(namespace, name string) *corev1.Service {
	return w.services[namespace+"/"+name]
}
func (w *world) Secret(namespace, name string) *corev1.Secret { return w.secrets[namespace+"/"+name] }
func (w *world) ConfigMap(namespace, name string) *corev1.ConfigMap {
	return w.configMaps[namespace+"/"+name]
}

// Place has each port 30000 higher.
func (w *world) Place(string) Place {
	return Place{Ports: map[Port]uint16{{80, false}: 30080, {443, false}: 30443, {8080, false}: 38080, {9000, false}: 39000, {9000, true}: 39000}, Addresses: []string{"192.0.2.1"}}
}

// read takes in objects of YAML. Secrets and config maps of the words "certificate" get one.
func (w *world) read(t *testing.T, text string) {
	t.Helper()
	for doc := range strings.SplitSeq(text, "\n---\n") {
		var head struct {
			Kind     string            `json:"kind"`
			Metadata metav1.ObjectMeta `json:"metadata"`
		}
		into := func(o metav1.Object) metav1.Object {
			if err := yaml.UnmarshalStrict([]byte(doc), o); err != nil {
				t.Fatalf("%v in\n%s", err, doc)
			}
			o.SetNamespace(cmp.Or(o.GetNamespace(), "infra"))
			return o
		}
		if err := yaml.Unmarshal([]byte(doc), &head); err != nil {
			t.Fatalf("%v in\n%s", err, doc)
		}
		key := cmp.Or(head.Metadata.Namespace, "infra") + "/" + head.Metadata.Name
		o := &w.objects
		switch head.Kind {
		case "":
		case "Namespace":
			w.namespaces[head.Metadata.Name] = into(&corev1.Namespace{}).(*corev1.Namespace)
		case "Service":
			w.services[key] = into(&corev1.Service{}).(*corev1.Service)
		case "Secret":
			s := into(&corev1.Secret{}).(*corev1.Secret)
			if s.StringData["certificate"] != "" {
				s.Data = certificate(t, s.StringData["certificate"])
			}
			w.secrets[key] = s
		case "ConfigMap":
			m := into(&corev1.ConfigMap{}).(*corev1.ConfigMap)
			if name := m.Data["certificate"]; name != "" {
				m.Data = map[string]string{"ca.crt": string(certificate(t, name)["tls.crt"])}
			}
			w.configMaps[key] = m
		case "GatewayClass":
			c := into(&gatewayv1.GatewayClass{}).(*gatewayv1.GatewayClass)
			c.Namespace = ""
			o.Classes = append(o.Classes, c)
		case "Gateway":
			o.Gateways = append(o.Gateways, into(&gatewayv1.Gateway{}).(*gatewayv1.Gateway))
		case "ListenerSet":
			o.ListenerSets = append(o.ListenerSets, into(&gatewayv1.ListenerSet{}).(*gatewayv1.ListenerSet))
		case "HTTPRoute":
			o.HTTPRoutes = append(o.HTTPRoutes, into(&gatewayv1.HTTPRoute{}).(*gatewayv1.HTTPRoute))
		case "GRPCRoute":
			o.GRPCRoutes = append(o.GRPCRoutes, into(&gatewayv1.GRPCRoute{}).(*gatewayv1.GRPCRoute))
		case "TLSRoute":
			o.TLSRoutes = append(o.TLSRoutes, into(&gatewayv1.TLSRoute{}).(*gatewayv1.TLSRoute))
		case "TCPRoute":
			o.TCPRoutes = append(o.TCPRoutes, into(&gatewayv1.TCPRoute{}).(*gatewayv1.TCPRoute))
		case "UDPRoute":
			o.UDPRoutes = append(o.UDPRoutes, into(&gatewayv1.UDPRoute{}).(*gatewayv1.UDPRoute))
		case "BackendTLSPolicy":
			o.Policies = append(o.Policies, into(&gatewayv1.BackendTLSPolicy{}).(*gatewayv1.BackendTLSPolicy))
		case "ReferenceGrant":
			o.Grants = append(o.Grants, into(&gatewayv1.ReferenceGrant{}).(*gatewayv1.ReferenceGrant))
		default:
			t.Fatalf("a %q in a test", head.Kind)
		}
	}
}

func certificate(t *testing.T, name string) map[string][]byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return map[string][]byte{
		"tls.crt": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), "tls.key": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}),
	}
}

// said are conditions in one line: True by their types, others with why.
func said(list []metav1.Condition) string {
	var out []string
	for _, c := range list {
		text := c.Type
		if c.Status != metav1.ConditionTrue {
			text = "!" + text
		}
		if c.Reason != c.Type && c.Reason != "NoConflicts" {
			text += "=" + c.Reason
		}
		out = append(out, text)
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// show is all that objects have come to, in lines.
func show(r *Result) string {
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(r.Gateways)) {
		g := r.Gateways[key]
		fmt.Fprintf(&b, "gateway %s: %s\n", key, said(g.Status.Conditions))
		for _, l := range g.Status.Listeners {
			fmt.Fprintf(&b, "  %s: %d routes, %s\n", l.Name, l.AttachedRoutes, said(l.Conditions))
		}
		for _, d := range g.Table.Doors {
			fmt.Fprintf(&b, "  port %d as %d\n", d.Public, d.Port)
			if v := d.Vouch; v != nil {
				fmt.Fprintf(&b, "    answers ACME servers for %v by %s\n", v.Hosts, v.Account)
			}
			for i := range d.Listeners {
				l := &d.Listeners[i]
				fmt.Fprintf(&b, "    %s %q %v\n", cmp.Or(string(l.Mode), "http"), l.Host, l.Certificates)
				for _, s := range l.Sites {
					showSite(&b, s)
				}
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(r.ListenerSets)) {
		s := r.ListenerSets[key]
		fmt.Fprintf(&b, "set %s: %s\n", key, said(s.Conditions))
		for _, l := range s.Listeners {
			fmt.Fprintf(&b, "  %s: %d routes, %s\n", l.Name, l.AttachedRoutes, said(l.Conditions))
		}
	}
	for _, kind := range []struct {
		name string
		all  map[string][]gatewayv1.RouteParentStatus
	}{{"http", r.HTTPRoutes}, {"grpc", r.GRPCRoutes}, {"tls", r.TLSRoutes}, {"tcp", r.TCPRoutes}, {"udp", r.UDPRoutes}} {
		for _, key := range slices.Sorted(maps.Keys(kind.all)) {
			for _, p := range kind.all[key] {
				fmt.Fprintf(&b, "%s %s at %s: %s\n", kind.name, key, p.ParentRef.Name, said(p.Conditions))
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(r.Policies)) {
		for _, a := range r.Policies[key] {
			fmt.Fprintf(&b, "policy %s at %s: %s\n", key, a.AncestorRef.Name, said(a.Conditions))
		}
	}
	return b.String()
}

func showSite(b *strings.Builder, s *route.Site) {
	for _, r := range s.Rules {
		fmt.Fprintf(b, "      %s: %q %s %s", s.Key, r.Host, r.Type, r.Path)
		if w := r.When; w != nil {
			fmt.Fprintf(b, " when %s", w.Method)
			for _, m := range slices.Concat(w.Headers, w.Query) {
				fmt.Fprintf(b, " %s=%s", m.Name, m.Value)
			}
		}
		do := &s.Actions[r.Do-1]
		fmt.Fprint(b, " ->")
		for i := range do.Backends {
			one := &do.Backends[i]
			fmt.Fprintf(b, " %s*%d", cmp.Or(one.Upstream, "none"), one.Weight)
			if one.Protocol != "" {
				fmt.Fprintf(b, " %s", one.Protocol)
			}
			if t := do.Retry; t != nil {
				fmt.Fprintf(b, " again %d after %d ms and %v", t.Attempts, t.Backoff, t.Codes)
			}
			if one.Trust != nil {
				fmt.Fprintf(b, " known as %s", one.Trust.Name)
			}
		}
		if do.Redirect != nil {
			fmt.Fprintf(b, " %d %s", do.Redirect.Code, do.Redirect.Scheme)
		}
		fmt.Fprintln(b)
	}
}

// The files are objects, and below a line of equal signs what they come to.
func TestObjectsComeToTablesAndStatuses(t *testing.T) {
	texttest.Run(t, "testdata/*.txt", func(t *testing.T, _, text string) string {
		const line = "\n====\n"
		given, _, _ := strings.Cut(text, line)
		w := &world{namespaces: map[string]*corev1.Namespace{}, services: map[string]*corev1.Service{}, secrets: map[string]*corev1.Secret{}, configMaps: map[string]*corev1.ConfigMap{}}
		w.objects.Cluster, w.objects.Bundle = w, Bundle
		w.read(t, "kind: GatewayClass\nmetadata: {name: kemudi}\nspec: {controllerName: kemudi.io/gateway}\n---\n"+given)
		return given + line + show(Compile(w.objects))
	})
}

func TestTablesComeBackFromTheirBytes(t *testing.T) {
	want := &Table{Doors: []*route.Door{{Port: 30080, Public: 80, Listeners: []route.Listener{{Host: "a.com"}}}}, Upstreams: []Upstream{{"infra", "web", 80, false}}}
	data, err := want.Pack()
	if err != nil {
		t.Fatal(err)
	}
	got, err := Unpack(data)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	if _, err := Unpack([]byte("no table")); err == nil {
		t.Error("what is no table was read")
	}
}

// The definitions here are those of the release, whose module itself asks for a newer Go: the sum is of its files
// config/crd/standard/gateway.networking.k8s.io_*.yaml but for the admission policy, by name.
func TestDefinitionsAreThoseOfTheRelease(t *testing.T) {
	const released = "6c5f5f800de2fc251da75e6a630cfd6d0d7f69b11626fb51bb68fc3d19f02bd2"
	list, err := Definitions()
	if err != nil || len(list) < 9 {
		t.Fatalf("got %d definitions, %v", len(list), err)
	}
	for _, crd := range list {
		if crd.Annotations[AnnotationBundle] != Bundle || crd.Annotations["gateway.networking.k8s.io/channel"] != "standard" {
			t.Errorf("%s is of %v, want %s", crd.Name, crd.Annotations, Bundle)
		}
	}
	files, err := filepath.Glob("definitions/*.yaml")
	if err != nil || len(files) != len(list) {
		t.Fatalf("got %d files, %v; want %d", len(files), err, len(list))
	}
	sum := sha256.New()
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		sum.Write(text)
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != released {
		t.Errorf("definitions: got sum %s, want %s of %s", got, released, Bundle)
	}
}
