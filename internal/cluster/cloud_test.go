package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	cloudprovider "k8s.io/cloud-provider"
	"sigs.k8s.io/yaml"

	"github.com/kemudi/kemudi/cloud"
	"github.com/kemudi/kemudi/examples/acmecloud/acme"
	"github.com/kemudi/kemudi/internal/api/coordination"
	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/api/rbac"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/client/https"
	"github.com/kemudi/kemudi/internal/cloud/loopback"
	"github.com/kemudi/kemudi/internal/cloudmanager"
	"github.com/kemudi/kemudi/internal/controllers"
	cloudloops "github.com/kemudi/kemudi/internal/controllers/cloud"
	"github.com/kemudi/kemudi/internal/task"
	"github.com/kemudi/kemudi/internal/trace"
	"github.com/kemudi/kemudi/test/wait"
)

// cloudBed is a cluster whose cloud is another process's, which has the rights of the
// manifest that people are given and no others.
type cloudBed struct {
	*joinBed
	kubeconfig, file string
	args             []string // of the manifest
}

func newCloudBed(t *testing.T) *cloudBed {
	t.Helper()
	b := &cloudBed{joinBed: newJoinBed(t, func(o *Options) { o.Controllers.Cloud.Name = "external" })}
	dir, admin := t.TempDir(), b.s.plane.Admin()
	b.kubeconfig, b.file = filepath.Join(dir, "kubeconfig"), filepath.Join(dir, "cloud.yaml")
	data, err := os.ReadFile("../../examples/cloud-controller-manager.yaml")
	b.must(err)
	var account corev1.ServiceAccount
	for _, doc := range bytes.Split(data, []byte("\n---\n")) {
		var kind metav1.TypeMeta
		b.must(yaml.Unmarshal(doc, &kind))
		switch kind.Kind {
		case "ServiceAccount":
			b.must(yaml.UnmarshalStrict(doc, &account))
			_, err = client.For(admin, core.ServiceAccounts).Create(t.Context(), account.DeepCopy())
		case "ClusterRole":
			var role rbacv1.ClusterRole
			b.must(yaml.UnmarshalStrict(doc, &role))
			_, err = client.For(admin, rbac.ClusterRoles).Create(t.Context(), &role)
		case "ClusterRoleBinding":
			var binding rbacv1.ClusterRoleBinding
			b.must(yaml.UnmarshalStrict(doc, &binding))
			_, err = client.For(admin, rbac.ClusterRoleBindings).Create(t.Context(), &binding)
		case "Deployment":
			var d appsv1.Deployment
			b.must(yaml.UnmarshalStrict(doc, &d))
			b.args = slices.DeleteFunc(d.Spec.Template.Spec.Containers[0].Args, func(a string) bool { return strings.HasPrefix(a, "--controllers=") })
		}
		b.must(err)
	}
	answer, err := client.For(admin, core.ServiceAccounts).Post(t.Context(), account.Namespace, account.Name, "token", &authenticationv1.TokenRequest{})
	b.must(err)
	c := clientcmdapi.NewConfig()
	c.Clusters["c"] = &clientcmdapi.Cluster{Server: b.url, CertificateAuthorityData: b.s.pki.CA.CertPEM()}
	c.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: answer.(*authenticationv1.TokenRequest).Status.Token}
	c.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	c.CurrentContext = "x"
	b.must(clientcmd.WriteToFile(*c, b.kubeconfig))
	return b
}

// world is what the cloud's file says from now on: nobody sees half of it.
func (b *cloudBed) world(text string) {
	b.Helper()
	b.must(os.WriteFile(b.file+".new", []byte(text), 0o600))
	b.must(os.Rename(b.file+".new", b.file))
}

// run runs the program with the manifest's flags and further ones, until the test ends.
func (b *cloudBed) run(further ...string) {
	b.Helper()
	o := cloudmanager.Defaults()
	f := pflag.NewFlagSet("", pflag.ContinueOnError)
	o.AddFlags(f)
	b.must(f.Parse(slices.Concat(b.args, []string{"--cloud-config", b.file, "--kubeconfig", b.kubeconfig, "--secure-port=0"}, further)))
	o.Logger = slog.New(slog.DiscardHandler)
	g := task.NewGroup(b.Context())
	g.Go("cloud controller manager", func(ctx context.Context) error { return cloudmanager.Run(ctx, o, nil) })
	b.Cleanup(func() {
		g.Cancel(context.Canceled)
		if err := g.Wait(); err != nil {
			b.Error(err)
		}
	})
}

// asManager is the API as the manifest's account sees it.
func (b *cloudBed) asManager() *https.Transport {
	b.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", b.kubeconfig)
	b.must(err)
	o, err := https.FromConfig(config)
	b.must(err)
	t, err := https.New(o)
	b.must(err)
	return t
}

func TestCloudControllerManagerWorksWithTheRightsThatAreDocumented(t *testing.T) {
	b := newCloudBed(t)
	b.world("clusterID: test\nmachines: [{name: cloudy, id: i-1, zone: a, addresses: [{type: InternalIP, address: 192.0.2.9}]}]\npool: [192.0.2.64/28]\n")
	admin := b.s.plane.Admin()
	nodes, services := client.For(admin, core.Nodes), client.For(admin, core.Services)
	_, err := nodes.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "cloudy"}, Spec: corev1.NodeSpec{
		PodCIDR: "10.244.9.0/24", PodCIDRs: []string{"10.244.9.0/24"},
		Taints: []corev1.Taint{{Key: "node.cloudprovider.kubernetes.io/uninitialized", Value: "true", Effect: corev1.TaintEffectNoSchedule}},
	}})
	b.must(err)
	_, err = services.Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Selector: map[string]string{"a": "b"}, Ports: []corev1.ServicePort{{Port: 80}}},
	})
	b.must(err)
	b.run("--configure-cloud-routes")
	trace.Proves(t, "CCM-001", "CCM-002", "CCM-026", "CCM-033/works")
	wait.Until(t, func() error {
		n, err := nodes.Get(t.Context(), "", "cloudy")
		if err != nil {
			return err
		}
		if n.Spec.ProviderID != "loopback://i-1" || len(n.Status.Addresses) == 0 || n.Status.Addresses[0].Address != "192.0.2.9" || n.Labels[corev1.LabelTopologyZone] != "a" {
			return fmt.Errorf("got provider ID %q, addresses %v and labels %v", n.Spec.ProviderID, n.Status.Addresses, n.Labels)
		}
		if c := core.NodeCondition(&n.Status, corev1.NodeNetworkUnavailable); c == nil || c.Status != corev1.ConditionFalse {
			return fmt.Errorf("got condition %v of the network", c)
		}
		return nil
	})
	trace.Proves(t, "CCM-028/listens", "CCM-028/configures", "CCM-029")
	wait.Until(t, func() error {
		svc, err := services.Get(t.Context(), "default", "web")
		if err == nil && (len(svc.Status.LoadBalancer.Ingress) == 0 || len(svc.Finalizers) == 0) {
			err = fmt.Errorf("got finalizers %v and status %v", svc.Finalizers, svc.Status.LoadBalancer)
		}
		return err
	})
	trace.Proves(t, "CCM-031")
	wait.Until(t, func() error {
		events, err := client.For(admin, core.Events).List(t.Context(), "default", metav1.ListOptions{})
		if err == nil && !slices.ContainsFunc(events, func(e *corev1.Event) bool { return e.Reason == "EnsuredLoadBalancer" }) {
			err = errors.New("no event tells of the balancer")
		}
		return err
	})
	b.must(services.Delete(t.Context(), "default", "web", metav1.DeleteOptions{}))
	wait.Until(t, func() error { // the cloud has let go of the balancer, and so does not write its file any more
		if _, err := services.Get(t.Context(), "default", "web"); !apierrors.IsNotFound(err) {
			return fmt.Errorf("a service that was deleted: got %w", errors.Join(err, errors.New("it is there")))
		}
		return nil
	})
	b.world("clusterID: test\nmachines: []\npool: [192.0.2.64/28]\n")
	trace.Proves(t, "CCM-015", "CCM-026")
	wait.Until(t, func() error { // it never was ready
		if _, err := nodes.Get(t.Context(), "", "cloudy"); !apierrors.IsNotFound(err) {
			return fmt.Errorf("a node without a machine: got %w", errors.Join(err, errors.New("it is there")))
		}
		return nil
	})
	trace.Proves(t, "CCM-033/works")
	if refused := b.refused(); len(refused) > 0 {
		t.Errorf("the program has asked for what it may not do:\n%s", strings.Join(refused, "\n"))
	}
}

// refused are the lines of the API server's metrics that count requests which were forbidden.
func (b *cloudBed) refused() (lines []string) {
	b.Helper()
	config, err := clientcmd.RESTConfigFromKubeConfig(adminKubeconfig(b))
	b.must(err)
	api, err := kubernetes.NewForConfig(config)
	b.must(err)
	metrics, err := api.RESTClient().Get().AbsPath("/metrics").DoRaw(b.Context())
	b.must(err)
	for line := range strings.Lines(string(metrics)) {
		if strings.HasPrefix(line, "apiserver_request_total{") && strings.Contains(line, `code="403"`) {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return lines
}

func TestCloudControllerManagerMayDoNothingElse(t *testing.T) {
	b := newCloudBed(t)
	api := b.asManager()
	_, err := client.For(api, core.ServiceAccounts).Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "made"}})
	trace.Proves(t, "CCM-032")
	if err != nil {
		t.Errorf("a service account: %v", err)
	}
	_, err = client.For(api, core.Endpoints).Create(t.Context(), &corev1.Endpoints{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "made"}})
	trace.Proves(t, "CCM-030")
	if err != nil {
		t.Errorf("endpoints: %v", err)
	}
	_, secrets := client.For(api, core.Secrets).List(t.Context(), "kube-system", metav1.ListOptions{})
	_, pods := client.For(api, core.Pods).List(t.Context(), "", metav1.ListOptions{})
	_, accounts := client.For(api, core.ServiceAccounts).List(t.Context(), "kube-system", metav1.ListOptions{})
	endpoints := client.For(api, core.Endpoints).Delete(t.Context(), "default", "made", metav1.DeleteOptions{})
	services := client.For(api, core.Services).Delete(t.Context(), "default", "kubernetes", metav1.DeleteOptions{})
	_, events := client.For(api, core.Events).List(t.Context(), "default", metav1.ListOptions{})
	trace.Proves(t, "CCM-033/denied")
	if len(b.refused()) == 0 {
		t.Error("the API server counts none of the requests that it forbids")
	}
	for what, err := range map[string]error{
		"read secrets": secrets, "read pods": pods, "read service accounts": accounts, "delete endpoints": endpoints, "delete services": services, "read events": events,
	} {
		if !apierrors.IsForbidden(err) {
			t.Errorf("%s: got %v, want that it is forbidden", what, err)
		}
	}
}

// vendors is a cloud that a vendor has written: one in a file, which wants clients too.
type vendors struct {
	*loopback.Cloud
	saw chan string
}

func (a vendors) Initialize(clients cloudprovider.ControllerClientBuilder, stop <-chan struct{}) {
	var wg sync.WaitGroup
	wg.Go(func() {
		list, err := clients.ClientOrDie("acme").CoreV1().Services("default").List(context.Background(), metav1.ListOptions{})
		if err == nil && len(list.Items) > 0 {
			a.saw <- list.Items[0].Name
		}
		<-stop
		close(a.saw)
	})
}

func TestVendorsProgramRunsTheLoopsOverTheVendorsCloud(t *testing.T) {
	b := newCloudBed(t)
	b.world("clusterID: test\nmachines: [{name: cloudy, id: i-7}]\n")
	a := vendors{saw: make(chan string, 1)}
	name := fmt.Sprintf("acme-%d", time.Now().UnixNano()) // there is one list of them in a process
	cloudprovider.RegisterCloudProvider(name, func(config io.Reader) (cloudprovider.Interface, error) {
		text, err := io.ReadAll(config)
		if err != nil {
			return nil, err
		}
		a.Cloud, err = loopback.Open(strings.TrimSpace(string(text)))
		return a, err
	})
	config := filepath.Join(t.TempDir(), "acme.conf")
	b.must(os.WriteFile(config, []byte(b.file+"\n"), 0o600))
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	var wg sync.WaitGroup
	wg.Go(func() {
		ended <- cloud.Run(ctx, name, []string{"--cloud-config", config, "--kubeconfig", b.kubeconfig, "--leader-elect=false", "--log-level=error", "--secure-port=0"})
	})
	_, err := client.For(b.s.plane.Admin(), core.Nodes).Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "cloudy"}, Spec: corev1.NodeSpec{
		Taints: []corev1.Taint{{Key: "node.cloudprovider.kubernetes.io/uninitialized", Effect: corev1.TaintEffectNoSchedule}},
	}})
	b.must(err)
	trace.Proves(t, "CCM-004", "CCM-024", "CCM-025", "COMP-019")
	wait.Until(t, func() error {
		n, err := client.For(b.s.plane.Admin(), core.Nodes).Get(t.Context(), "", "cloudy")
		if err == nil && n.Spec.ProviderID != "loopback://i-7" {
			err = errors.New("the node waits")
		}
		return err
	})
	if got := <-a.saw; got != "kubernetes" {
		t.Errorf("got service %q by the cloud's own client, want kubernetes", got)
	}
	stop()
	wg.Wait()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	for range a.saw { // until what the cloud has begun has ended
	}
}

// TestExampleOfAVendorsProgramLooksAfterNodes has the cloud of examples/acmecloud tell of a machine, from its first to its
// last day.
func TestExampleOfAVendorsProgramLooksAfterNodes(t *testing.T) {
	b := newCloudBed(t)
	var answer atomic.Value // what acme says of machine m
	answer.Store(`{"id":"i-9","kind":"big","zone":"a","region":"west","address":"192.0.2.9"}`)
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		said := answer.Load().(string)
		switch {
		case r.Header.Get("Authorization") != "Bearer secret":
			http.Error(w, "who", http.StatusUnauthorized)
		case r.URL.Path != "/machines/m": // the bed's own node: nothing is known of it
			http.Error(w, "not today", http.StatusServiceUnavailable)
		case said == "":
			http.NotFound(w, r)
		default:
			fmt.Fprint(w, said)
		}
	}))
	t.Cleanup(api.Close)
	config := filepath.Join(t.TempDir(), "acme.json")
	b.must(os.WriteFile(config, fmt.Appendf(nil, `{"url": %q, "token": "secret"}`, api.URL), 0o600))
	name := fmt.Sprintf("%s-%d", acme.Name, time.Now().UnixNano()) // there is one list of them in a process
	cloudprovider.RegisterCloudProvider(name, acme.Open)
	b.g.Go("the vendor's program", func(ctx context.Context) error {
		return cloud.Run(ctx, name, []string{"--cloud-config", config, "--kubeconfig", b.kubeconfig, "--leader-elect=false", "--log-level=error", "--secure-port=0", "--node-monitor-period=1s"})
	})
	nodes := client.For(b.s.plane.Admin(), core.Nodes)
	_, err := nodes.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "m"}, Spec: corev1.NodeSpec{
		Taints: []corev1.Taint{{Key: "node.cloudprovider.kubernetes.io/uninitialized", Effect: corev1.TaintEffectNoSchedule}},
	}})
	b.must(err)
	trace.Proves(t, "CCM-004", "CCM-024", "CCM-025", "COMP-019")
	wait.Until(t, func() error {
		n, err := nodes.Get(t.Context(), "", "m")
		if err == nil && (n.Spec.ProviderID != "acme://i-9" || n.Labels[corev1.LabelTopologyZone] != "a" || len(n.Status.Addresses) != 1) {
			err = fmt.Errorf("got %+v with %v", n.Spec, n.Status.Addresses)
		}
		return err
	})
	answer.Store(`{"id":"i-9","off":true}`)
	wait.Until(t, func() error {
		n, err := nodes.Get(t.Context(), "", "m")
		if err == nil && !slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == "node.cloudprovider.kubernetes.io/shutdown" }) {
			err = fmt.Errorf("got taints %v of a machine that is off", n.Spec.Taints)
		}
		return err
	})
	answer.Store("")
	wait.Until(t, func() error {
		if _, err := nodes.Get(t.Context(), "", "m"); !apierrors.IsNotFound(err) {
			return errors.Join(errors.New("the node of a machine that is gone is there"), err)
		}
		return nil
	})
}

func TestOneOfTwoCloudControllerManagersRuns(t *testing.T) {
	b := newCloudBed(t)
	b.must(os.WriteFile(b.kubeconfig, adminKubeconfig(b), 0o600))
	b.world("clusterID: test\nmachines: [{name: cloudy}]\n")
	b.run("--leader-elect")
	b.run("--leader-elect")
	_, err := client.For(b.s.plane.Admin(), core.Nodes).Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "cloudy"}, Spec: corev1.NodeSpec{
		Taints: []corev1.Taint{{Key: "node.cloudprovider.kubernetes.io/uninitialized", Effect: corev1.TaintEffectNoSchedule}},
	}})
	b.must(err)
	wait.Until(t, func() error {
		n, err := client.For(b.s.plane.Admin(), core.Nodes).Get(t.Context(), "", "cloudy")
		if err == nil && n.Spec.ProviderID == "" {
			err = errors.New("the node waits")
		}
		return err
	})
	lease, err := client.For(b.s.plane.Admin(), coordination.Leases).Get(t.Context(), "kube-system", "cloud-controller-manager")
	b.must(err)
	if lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity == "" {
		t.Errorf("got %+v, want that one of them holds the lease", lease.Spec)
	}
}

// adminKubeconfig is a kubeconfig of the administrator, who may hold leases.
func adminKubeconfig(b *cloudBed) []byte {
	path := filepath.Join(b.TempDir(), "admin")
	b.must(b.s.pki.WriteAdminKubeconfig(path, "c", b.url))
	data, err := os.ReadFile(path)
	b.must(err)
	return data
}

func TestCloudControllerManagerRefusesWhatCannotBe(t *testing.T) {
	dir := t.TempDir()
	file, empty := filepath.Join(dir, "cloud.yaml"), filepath.Join(dir, "empty.yaml")
	if err := errors.Join(os.WriteFile(file, []byte("machines: []\n"), 0o600), os.WriteFile(empty, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "--cloud-provider: want the name of the cloud that the loops are to ask"},
		{[]string{"--cloud-provider=external"}, "--cloud-provider: want the name of the cloud that the loops are to ask"},
		{[]string{"--cloud-provider=acme"}, `--cloud-provider "acme" is not built in`},
		{[]string{"--cloud-provider=loopback"}, "--cloud-provider loopback: want a file with its machines (--cloud-config)"},
		{[]string{"--cloud-provider=loopback", "--cloud-config=" + empty}, "--cloud-provider loopback: loopback cloud " + empty + ": it is empty"},
		{[]string{"--cloud-provider=loopback", "--cloud-config=" + file}, "no ClusterID found"},
		{[]string{"--cloud-provider=loopback", "--cloud-config=" + file, "--allow-untagged-cloud", "--kubeconfig=" + filepath.Join(dir, "none")}, "find the API (--kubeconfig): "},
		{[]string{"--cloud-provider=loopback", "--tls-cert-file=crt"}, "--tls-cert-file and --tls-private-key-file go together"},
		{[]string{"--cloud-provider=loopback", "--leader-elect-resource-name=a,b"}, "--leader-elect-resource-name: want one name"},
		{[]string{"--cloud-provider=loopback", "--cloud-config=" + file, "--controllers=cloud-nodes"}, "--controllers: 'cloud-nodes' is not in the list of known controllers"},
	} {
		o := cloudmanager.Defaults()
		f := pflag.NewFlagSet("", pflag.ContinueOnError)
		o.AddFlags(f)
		if err := f.Parse(c.args); err != nil {
			t.Fatal(err)
		}
		if err := cloudmanager.Run(t.Context(), o, nil); err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %s", c.args, err, c.want)
		}
	}
}

// TestServersLeaveTheCloudToTheProgramBesideThem has nodes, a service and claims of volumes wait: what is of the cloud
// for the program beside, the volumes for nobody.
func TestServersLeaveTheCloudToTheProgramBesideThem(t *testing.T) {
	b := newCloudBed(t)
	const world = "clusterID: test\nmachines: [{name: cloudy, id: i-1, zone: a, addresses: [{type: InternalIP, address: 192.0.2.9}]}]\npool: [192.0.2.64/28]\n"
	b.world(world)
	admin := b.s.plane.Admin()
	nodes, services, claims := client.For(admin, core.Nodes), client.For(admin, core.Services), client.For(admin, core.PersistentVolumeClaims)
	_, err := nodes.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "cloudy"}, Spec: corev1.NodeSpec{
		PodCIDR: "10.244.9.0/24", PodCIDRs: []string{"10.244.9.0/24"},
		Taints: []corev1.Taint{{Key: "node.cloudprovider.kubernetes.io/uninitialized", Value: "true", Effect: corev1.TaintEffectNoSchedule}},
	}})
	b.must(err)
	_, err = services.Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Selector: map[string]string{"a": "b"}, Ports: []corev1.ServicePort{{Port: 80}}},
	})
	b.must(err)
	size := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	for name, source := range map[string]corev1.PersistentVolumeSource{
		"flex": {FlexVolume: &corev1.FlexPersistentVolumeSource{Driver: "example.com/disk"}},
		"csi":  {CSI: &corev1.CSIPersistentVolumeSource{Driver: "disk.example.com", VolumeHandle: "d-1"}},
	} {
		_, err = client.For(admin, core.PersistentVolumes).Create(t.Context(), &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeSpec{
			Capacity: size, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: name, PersistentVolumeSource: source,
		}})
		b.must(err)
		_, err = claims.Create(t.Context(), &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: &name, Resources: corev1.VolumeResourceRequirements{Requests: size},
		}})
		b.must(err)
	}
	trace.Proves(t, "CCM-009", "CCM-010")
	wait.Until(t, func() error { // the servers' own controllers, whoever the volume is of
		for _, name := range []string{"flex", "csi"} {
			if c, err := claims.Get(t.Context(), "default", name); err != nil || c.Status.Phase != corev1.ClaimBound {
				return errors.Join(err, fmt.Errorf("claim %s is not bound", name))
			}
		}
		return nil
	})
	node, err := nodes.Get(t.Context(), "", "cloudy")
	b.must(err)
	svc, err := services.Get(t.Context(), "default", "web")
	b.must(err)
	data, err := os.ReadFile(b.file)
	b.must(err)
	trace.Proves(t, "CCM-006")
	if node.Spec.ProviderID != "" || len(node.Status.Addresses) > 0 || len(svc.Status.LoadBalancer.Ingress) > 0 || len(svc.Finalizers) > 0 || string(data) != world {
		t.Errorf("without the program: got node %+v, service %+v and cloud\n%s", node, svc, data)
	}
	b.run("--configure-cloud-routes")
	trace.Proves(t, "CCM-006", "CCM-007", "CCM-008")
	wait.Until(t, func() error {
		node, err := nodes.Get(t.Context(), "", "cloudy")
		svc, err2 := services.Get(t.Context(), "default", "web")
		if err := errors.Join(err, err2); err != nil {
			return err
		}
		c := core.NodeCondition(&node.Status, corev1.NodeNetworkUnavailable)
		if node.Spec.ProviderID == "" || c == nil || c.Status != corev1.ConditionFalse || len(svc.Status.LoadBalancer.Ingress) == 0 {
			return fmt.Errorf("got provider ID %q, condition %v and ingress %v", node.Spec.ProviderID, c, svc.Status.LoadBalancer.Ingress)
		}
		return nil
	})
	for _, c := range controllers.OfCloud(controllers.Options{Cloud: cloudloops.Options{Provider: &loopback.Cloud{}}}) {
		for _, def := range c.Reads {
			if strings.HasPrefix(def.Plural, "persistentvolume") || def.Plural == "storageclasses" || def.Plural == "volumeattachments" {
				t.Errorf("%s is about volumes: it reads %s", c.Name, def.Plural)
			}
		}
	}
}
