package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/api/apiregistration"
	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/auth/pki"
	"github.com/kemudi/kemudi/internal/auth/trust"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/trace"
	"github.com/kemudi/kemudi/test/port"
	"github.com/kemudi/kemudi/test/wait"
)

// sampleServer names the program of test/sampleserver, upstream's sample of an aggregated API server: it runs in
// place of ours then. Make sample-server sets it.
const sampleServer = "KEMUDI_SAMPLE_SERVER"

var (
	wardle   = schema.GroupVersion{Group: "wardle.example.com", Version: "v1alpha1"}
	flunders = wardle.WithResource("flunders")
	apis     = schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"}
)

// aggregatedBed is a cluster with a server of wardle.example.com behind a service.
type aggregatedBed struct {
	*joinBed
	admin      *rest.Config
	k          kubernetes.Interface
	dynamic    dynamic.Interface
	kubeconfig string // of the server's account
	at         netip.AddrPort
	l          net.Listener // of our server; nil: upstream's listens itself
	authority  *pki.Authority
}

// wardleNamespace is where the service of the server is.
const wardleNamespace = "wardle"

func newAggregatedBed(t *testing.T) *aggregatedBed {
	t.Helper()
	at := ownAddress(t)
	b := &aggregatedBed{joinBed: newJoinBed(t), at: netip.AddrPortFrom(at, port.Reserve(t))}
	if os.Getenv(sampleServer) == "" {
		l, err := net.Listen("tcp", netip.AddrPortFrom(at, 0).String())
		b.must(err)
		b.l, b.at = l, l.Addr().(*net.TCPAddr).AddrPort()
	}
	b.g.Go("whom others are to believe", trust.NewPublisher(b.s.plane.Admin(), b.s.trust, slog.New(slog.DiscardHandler)).Run)
	path := filepath.Join(t.TempDir(), "admin")
	b.must(b.s.pki.WriteAdminKubeconfig(path, "c", b.url))
	var err error
	b.admin, err = clientcmd.BuildConfigFromFlags("", path)
	b.must(err)
	b.admin.QPS = -1
	b.k, err = kubernetes.NewForConfig(b.admin)
	b.must(err)
	b.dynamic, err = dynamic.NewForConfig(b.admin)
	b.must(err)
	b.authority, err = pki.NewAuthority("wardle")
	b.must(err)
	_, err = b.k.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: wardleNamespace}}, metav1.CreateOptions{})
	b.must(err)
	b.kubeconfig = b.account()
	return b
}

// ownAddress is an address of this machine that others reach.
func ownAddress(t *testing.T) netip.Addr {
	t.Helper()
	all, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range all {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Is4() && p.Addr().IsGlobalUnicast() {
			return p.Addr()
		}
	}
	t.Skip("this machine has no address but those of itself")
	return netip.Addr{}
}

// account makes the account of the server, with the rights that such servers are documented to need, and a kubeconfig
// for it.
func (b *aggregatedBed) account() (kubeconfig string) {
	b.Helper()
	ctx, o := b.Context(), metav1.CreateOptions{}
	subjects := []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: wardleNamespace, Name: "server"}}
	_, err := b.k.CoreV1().ServiceAccounts(wardleNamespace).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "server"}}, o)
	b.must(err)
	_, err = b.k.RbacV1().ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "wardle"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"get", "list", "watch"}},
	}}, o)
	b.must(err)
	for name, role := range map[string]string{"wardle": "wardle", "wardle:delegator": "system:auth-delegator"} {
		_, err = b.k.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role}, Subjects: subjects,
		}, o)
		b.must(err)
	}
	_, err = b.k.RbacV1().RoleBindings(metav1.NamespaceSystem).Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "wardle-reader"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "extension-apiserver-authentication-reader"},
		Subjects: subjects,
	}, o)
	b.must(err)
	c := clientcmdapi.NewConfig()
	c.Clusters["c"] = &clientcmdapi.Cluster{Server: b.url, CertificateAuthorityData: b.s.pki.CA.CertPEM()}
	c.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: b.tokenOf("server")}
	c.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	c.CurrentContext = "x"
	path := filepath.Join(b.TempDir(), "kubeconfig")
	b.must(clientcmd.WriteToFile(*c, path))
	return path
}

// tokenOf is a token of an account.
func (b *aggregatedBed) tokenOf(account string) string {
	b.Helper()
	r, err := b.k.CoreV1().ServiceAccounts(wardleNamespace).CreateToken(b.Context(), account, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	b.must(err)
	return r.Status.Token
}

// start runs the server until the test ends: upstream's sample, or ours.
func (b *aggregatedBed) start() {
	b.Helper()
	pair, err := b.authority.Issue(pki.Subject{Name: "wardle", Hosts: []string{"api." + wardleNamespace + ".svc"}, Server: true})
	b.must(err)
	program := os.Getenv(sampleServer)
	if program == "" {
		b.g.Go("wardle", func(ctx context.Context) error { return b.serveWardle(ctx, pair.TLS()) })
		return
	}
	dir := b.TempDir()
	key, err := pair.KeyPEM()
	b.must(err)
	b.must(errors.Join(os.WriteFile(filepath.Join(dir, "crt"), pair.CertPEM(), 0o600), os.WriteFile(filepath.Join(dir, "key"), key, 0o600)))
	var said bytes.Buffer
	cmd := exec.CommandContext(b.Context(), program, "--bind-address="+b.at.Addr().String(), fmt.Sprintf("--secure-port=%d", b.at.Port()),
		"--tls-cert-file="+filepath.Join(dir, "crt"), "--tls-private-key-file="+filepath.Join(dir, "key"),
		"--kubeconfig="+b.kubeconfig, "--authentication-kubeconfig="+b.kubeconfig, "--authorization-kubeconfig="+b.kubeconfig,
		"--enable-priority-and-fairness=false",
		"--disable-admission-plugins=MutatingAdmissionWebhook,ValidatingAdmissionWebhook,MutatingAdmissionPolicy,ValidatingAdmissionPolicy")
	cmd.Env = append(os.Environ(), "SAMPLESERVER_DIR="+filepath.Join(dir, "etcd"), "SAMPLESERVER_ETCD=http://"+port.Address(b),
		"SAMPLESERVER_PEERS=http://"+port.Address(b))
	cmd.Stderr, cmd.Stdout, cmd.WaitDelay = &said, &said, 10*time.Second
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	b.must(cmd.Start())
	ended := make(chan error, 1) // of the one program
	b.g.Go("the sample", func(context.Context) error {
		ended <- cmd.Wait()
		return nil
	})
	b.Cleanup(func() {
		if err := <-ended; b.Failed() {
			b.Logf("the sample: %v\n%s", err, said.String())
		}
	})
}

// register makes the service, says where it is, and what it has.
func (b *aggregatedBed) register() {
	b.Helper()
	ctx, o := b.Context(), metav1.CreateOptions{}
	_, err := b.k.CoreV1().Services(wardleNamespace).Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "api"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 7443}}},
	}, o)
	b.must(err)
	_, err = b.k.DiscoveryV1().EndpointSlices(wardleNamespace).Create(ctx, &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Name: "api-1", Labels: map[string]string{discoveryv1.LabelServiceName: "api"}}, AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{b.at.Addr().String()}}}, Ports: []discoveryv1.EndpointPort{{Name: ptr.To(""), Port: ptr.To(int32(b.at.Port()))}},
	}, o)
	b.must(err)
	s := &apiregistrationv1.APIService{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apiregistration.k8s.io/v1", Kind: "APIService"},
		ObjectMeta: metav1.ObjectMeta{Name: apiregistration.Name(wardle), Labels: map[string]string{"of": "sample"}},
		Spec: apiregistrationv1.APIServiceSpec{
			Group: wardle.Group, Version: wardle.Version, GroupPriorityMinimum: 2000, VersionPriority: 200, CABundle: b.authority.CertPEM(),
			Service: &apiregistrationv1.ServiceReference{Namespace: wardleNamespace, Name: "api", Port: ptr.To[int32](7443)},
		},
	}
	_, err = client.For(b.s.plane.Admin(), apiregistration.APIServices).Create(ctx, s)
	b.must(err)
}

// available waits until the group-version can be used.
func (b *aggregatedBed) available() {
	b.Helper()
	wait.Until(b.T, func() error {
		s, err := client.For(b.s.plane.Admin(), apiregistration.APIServices).Get(b.Context(), "", apiregistration.Name(wardle))
		if err != nil {
			return err
		}
		if c := apiregistration.Available(s); c == nil || c.Status != apiregistrationv1.ConditionTrue {
			return fmt.Errorf("it is not available: %+v", c)
		}
		return nil
	})
}

// flunder is an object of the server.
func flunder(namespace, name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": wardle.String(), "kind": "Flunder", "metadata": map[string]any{"namespace": namespace, "name": name, "labels": map[string]any{"of": "test"}},
	}}
}

// TestServersOfAggregatedAPIsWorkAsInCertifiedClusters has a server, with rights and settings as certified clusters
// have it, serve a group behind the API.
func TestServersOfAggregatedAPIsWorkAsInCertifiedClusters(t *testing.T) {
	b := newAggregatedBed(t)
	b.register()
	b.start()
	b.available()
	ctx, all := t.Context(), b.dynamic.Resource(flunders).Namespace("default")
	if _, err := all.Create(ctx, flunder("default", "one"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	list, err := all.List(ctx, metav1.ListOptions{})
	if err != nil || len(list.Items) != 1 || list.Items[0].GetName() != "one" || list.GetKind() != "FlunderList" {
		t.Errorf("list: got %v, %v", list, err)
	}
	if _, err := all.Create(ctx, flunder("default", "one"), metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
		t.Errorf("twice: got %v", err)
	}
	b.refusesOthers()
	// Discovery knows what there is.
	_, lists, err := b.k.Discovery().ServerGroupsAndResources()
	if err != nil || !slices.ContainsFunc(lists, func(l *metav1.APIResourceList) bool {
		return l.GroupVersion == wardle.String() && slices.ContainsFunc(l.APIResources, func(r metav1.APIResource) bool { return r.Name == "flunders" && r.Namespaced })
	}) {
		t.Errorf("discovery: got %v, %v", lists, err)
	}
	b.status()
	if err := all.Delete(ctx, "one", metav1.DeleteOptions{}); err != nil {
		t.Errorf("delete: %v", err)
	}
	if _, err := all.Get(ctx, "one", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("what is deleted: got %v", err)
	}
	b.emptiesNamespaces()
	if err := b.dynamic.Resource(apis).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "of=sample"}); err != nil {
		t.Errorf("delete the APIService: %v", err)
	}
	wait.Until(t, func() error {
		if _, err := all.List(ctx, metav1.ListOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("the group is still there: %v", err)
		}
		return nil
	})
	trace.Proves(t, "API-029/aggregator", "C-089")
}

// refusesOthers shows that the server asks the API who somebody is and what they may do: whoever comes to it
// by themselves, and who comes through the API.
func (b *aggregatedBed) refusesOthers() {
	b.Helper()
	_, err := b.k.CoreV1().ServiceAccounts(wardleNamespace).Create(b.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "jane"}}, metav1.CreateOptions{})
	b.must(err)
	token := b.tokenOf("jane")
	path := "/apis/" + wardle.String() + "/namespaces/default/flunders"
	directly := func(token string) int {
		c, err := rest.HTTPClientFor(&rest.Config{
			BearerToken: token, TLSClientConfig: rest.TLSClientConfig{CAData: b.authority.CertPEM(), ServerName: "api." + wardleNamespace + ".svc"},
		})
		b.must(err)
		r, err := http.NewRequestWithContext(b.Context(), http.MethodGet, "https://"+b.at.String()+path, nil)
		b.must(err)
		r.Header.Set("X-Remote-User", "admin") // which nobody believes without the certificate
		r.Header.Set("X-Remote-Group", "system:masters")
		resp, err := c.Do(r)
		b.must(err)
		b.must(resp.Body.Close())
		return resp.StatusCode
	}
	if code := directly(token); code != http.StatusForbidden {
		b.Errorf("who has no right, at the server itself: got %d, want 403", code)
	}
	jane := b.client(rest.Config{BearerToken: token})
	if err := jane.CoreV1().RESTClient().Get().AbsPath(path).Do(b.Context()).Error(); !apierrors.IsForbidden(err) {
		b.Errorf("who has no right, through the API: got %v", err)
	}
	_, err = b.k.RbacV1().ClusterRoles().Create(b.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "flunders"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{wardle.Group}, Resources: []string{"flunders"}, Verbs: []string{"list"}},
	}}, metav1.CreateOptions{})
	b.must(err)
	_, err = b.k.RbacV1().ClusterRoleBindings().Create(b.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "flunders"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "flunders"},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: wardleNamespace, Name: "jane"}},
	}, metav1.CreateOptions{})
	b.must(err)
	wait.Until(b.T, func() error { // refusals are remembered for a while
		if code := directly(token); code != http.StatusOK {
			return fmt.Errorf("who has the right, at the server itself: got %d, want 200", code)
		}
		return jane.CoreV1().RESTClient().Get().AbsPath(path).Do(b.Context()).Error()
	})
}

// status writes conditions into the status of the APIService, as clients do.
func (b *aggregatedBed) status() {
	b.Helper()
	s := b.dynamic.Resource(apis)
	name := apiregistration.Name(wardle)
	got, err := s.Patch(b.Context(), name, types.MergePatchType, []byte(`{"metadata":{"labels":{"patched":"yes"}},"status":{"conditions":[{"type":"StatusPatched","status":"True","reason":"E2E"}]}}`),
		metav1.PatchOptions{}, "status")
	if err != nil || !hasCondition(got, "StatusPatched") {
		b.Errorf("patch the status: got %v, %v", got, err)
	}
	wait.Until(b.T, func() error { // the server's own condition comes back beside it
		now, err := s.Get(b.Context(), name, metav1.GetOptions{}, "status")
		if err != nil {
			return err
		}
		if !hasCondition(now, "Available") {
			return errors.New("nothing says that it is available")
		}
		conditions, _, _ := unstructured.NestedSlice(now.Object, "status", "conditions")
		conditions = append(conditions, map[string]any{"type": "StatusUpdated", "status": "True", "reason": "E2E"})
		b.must(unstructured.SetNestedSlice(now.Object, conditions, "status", "conditions"))
		got, err := s.UpdateStatus(b.Context(), now, metav1.UpdateOptions{})
		if err == nil && !hasCondition(got, "StatusUpdated") {
			return fmt.Errorf("update the status: got %v", got)
		}
		return err
	})
	list, err := s.List(b.Context(), metav1.ListOptions{LabelSelector: "of=sample"})
	if err != nil || len(list.Items) != 1 {
		b.Errorf("APIServices by label: got %v, %v", list, err)
	}
	b.available()
}

func hasCondition(obj *unstructured.Unstructured, kind string) bool {
	if obj == nil {
		return false
	}
	conditions, _, _ := unstructured.NestedSlice(obj.Object, "status", "conditions")
	return slices.ContainsFunc(conditions, func(c any) bool { m, _ := c.(map[string]any); return m["type"] == kind })
}

// emptiesNamespaces shows that what the server has in a namespace goes with it.
func (b *aggregatedBed) emptiesNamespaces() {
	b.Helper()
	ctx := b.Context()
	_, err := b.k.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "goes"}}, metav1.CreateOptions{})
	b.must(err)
	wait.Until(b.T, func() error { // the server must have heard of the namespace
		_, err := b.dynamic.Resource(flunders).Namespace("goes").Create(ctx, flunder("goes", "content"), metav1.CreateOptions{})
		return err
	})
	b.must(b.k.CoreV1().Namespaces().Delete(ctx, "goes", metav1.DeleteOptions{}))
	wait.Until(b.T, func() error {
		if _, ok := client.Cached(b.s.plane.Admin(), core.Namespaces, "").Get("", "goes"); ok {
			return errors.New("the namespace is still there")
		}
		return nil
	})
	list, err := b.dynamic.Resource(flunders).Namespace("goes").List(ctx, metav1.ListOptions{})
	if err != nil || len(list.Items) > 0 {
		b.Errorf("of a namespace that is gone: got %v, %v", list, err)
	}
}

// writeAnswer answers with an object.
func writeAnswer(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(v) // an error means that the client has gone
}

// writeStatus answers with an error of the API.
func writeStatus(w http.ResponseWriter, err apierrors.APIStatus) {
	s := err.Status()
	s.Kind, s.APIVersion = "Status", "v1"
	writeAnswer(w, int(s.Code), s)
}
