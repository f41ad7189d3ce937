package cluster

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/big"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kemudi/kemudi/internal/store"
	"github.com/kemudi/kemudi/internal/store/etcd"
	"github.com/kemudi/kemudi/internal/task"
	"github.com/kemudi/kemudi/internal/up"
	"github.com/kemudi/kemudi/test/wait"
)

// upstreamsStore holds what upstream's API server has stored: where the API has it, its key, its
// value in base64.
const upstreamsStore = "../apiserver/testdata/upstream-store.txt"

// oldToken is a token that the old cluster has made for an account.
const oldToken = "made.by.others"

// oldCluster is the data directory of an etcd with what upstream has stored, keys that no kind
// here has, and more.
func oldCluster(t *testing.T, more ...store.Op) string {
	t.Helper()
	dir := t.TempDir()
	st, err := etcd.New(etcd.Options{Dir: dir, Name: "old", Log: slog.New(slog.DiscardHandler), NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	g := task.NewGroup(t.Context())
	g.Go("etcd", st.Run)
	text, err := os.ReadFile(upstreamsStore)
	if err != nil {
		t.Fatal(err)
	}
	ops := []store.Op{
		{Key: "/registry/apiextensions.k8s.io/customresourcedefinitions/widgets.example.com", Value: []byte(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition",
			"metadata":{"name":"widgets.example.com","uid":"w","generation":1},
			"spec":{"group":"example.com","scope":"Namespaced","names":{"plural":"widgets","singular":"widget","kind":"Widget","listKind":"WidgetList"},
			"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}]},
			"status":{"storedVersions":["v1"],"acceptedNames":{"plural":"widgets","singular":"widget","kind":"Widget","listKind":"WidgetList"},
			"conditions":[{"type":"NamesAccepted","status":"True","reason":"NoConflicts"},{"type":"Established","status":"True","reason":"InitialNamesAccepted"}]}}`)},
		{Key: "/registry/example.com/widgets/default/w1", Value: []byte(`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w1","namespace":"default","uid":"w1"}}`)},
		{Key: "/registry/other.example.com/gadgets/default/g", Value: []byte(`{"apiVersion":"other.example.com/v1"}`)},
		{Key: "/registry/ranges/serviceips", Value: []byte("k8s\x00")}, {Key: "/calico/resources/x", Value: []byte("{}")},
		{Key: "/registry/configmaps/default/broken", Value: []byte("k8s\x00\xff")},
		stored(t, "/registry/secrets/default/token", &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "token", UID: "s", Annotations: map[string]string{corev1.ServiceAccountNameKey: "default"}},
			Type:       corev1.SecretTypeServiceAccountToken, Data: map[string][]byte{corev1.ServiceAccountTokenKey: []byte(oldToken), corev1.ServiceAccountRootCAKey: []byte("old")},
		}),
	}
	for line := range strings.Lines(string(text)) {
		parts := strings.Fields(line)
		value, err := base64.StdEncoding.DecodeString(parts[2])
		if err != nil {
			t.Fatal(err)
		}
		ops = append(ops, store.Op{Key: parts[1], Value: value})
	}
	for _, op := range append(ops, more...) {
		if _, err := st.Txn(t.Context(), store.Txn{Ops: []store.Op{op}}); err != nil {
			t.Fatal(err)
		}
	}
	g.Cancel(context.Canceled)
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	return dir
}

// stored is an object as upstream stores it.
func stored(t *testing.T, key string, obj runtime.Object) store.Op {
	t.Helper()
	kinds, _, err := scheme.Scheme.ObjectKinds(obj)
	if err != nil {
		t.Fatal(err)
	}
	obj.GetObjectKind().SetGroupVersionKind(kinds[0])
	var value bytes.Buffer
	if err := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme).Encode(obj, &value); err != nil {
		t.Fatal(err)
	}
	return store.Op{Key: key, Value: value.Bytes()}
}

// taking are the options of a server that takes over, and the steps that it tells of.
func taking(t *testing.T, from string) (Options, *[]string) {
	t.Helper()
	o, steps := planeOnly(t), &[]string{}
	o.Takeover.Etcd = from
	o.Network.ClusterDNS = netip.MustParseAddr("10.96.0.53") // a service there has the default
	o.Step = func(name string, _ bool) { *steps = append(*steps, name) }
	return o, steps
}

// database is what the store of a server that has ended has at each key.
func database(t *testing.T, dir string) map[string]string {
	t.Helper()
	list, err := etcd.ReadSnapshot(filepath.Join(dir, "etcd/member/snap/db"), "/")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, kv := range list {
		all[kv.Key] = string(kv.Value)
	}
	return all
}

func TestStoreOfAnotherKubernetesIsTakenOver(t *testing.T) {
	t.Parallel()
	from := oldCluster(t)
	before := database(t, from)
	o, steps := taking(t, from)
	api, stop := runServer(t, o)
	for _, want := range []string{
		"copied the store of " + from,
		"left as they are, as no kind here: gadgets.other.example.com (1)",
		"left as they are, as nobody can read them: configmaps (1)",
		"left as they are: 1 keys of other programs",
	} {
		if !slices.Contains(*steps, want) {
			t.Errorf("got steps\n%s\nwant %q", strings.Join(*steps, "\n"), want)
		}
	}
	wait.Until(t, func() error {
		_, err := api.CoreV1().RESTClient().Get().AbsPath("/apis/example.com/v1/namespaces/default/widgets/w1").DoRaw(t.Context())
		return err
	})
	d, err := api.AppsV1().Deployments("default").Get(t.Context(), "d", metav1.GetOptions{})
	if err != nil || !strings.HasPrefix(string(d.UID), "00000000-0000-4000-8000-") {
		t.Errorf("got deployment %v, %v, want the one that was there", d, err)
	}
	sa, err := api.CoreV1().ServiceAccounts("default").Get(t.Context(), "default", metav1.GetOptions{})
	if err != nil || sa.UID == "" {
		t.Fatalf("got %v, %v, want the account that was there", sa, err)
	}
	wait.Until(t, func() error {
		secret, err := api.CoreV1().Secrets("default").Get(t.Context(), "token", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if token := string(secret.Data[corev1.ServiceAccountTokenKey]); token == oldToken || token == "" || string(secret.Data[corev1.ServiceAccountRootCAKey]) == "old" {
			return fmt.Errorf("the account's token is %q, want one by the new key", token)
		}
		return nil
	})
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	after := database(t, o.DataDir)
	for key, value := range before {
		known := strings.Contains(key, "example.com") || strings.HasPrefix(key, "/calico") || strings.HasSuffix(key, "broken") || strings.Contains(key, "/ranges/")
		if known && after[key] != value {
			t.Errorf("%s: got %q, want it as it was", key, after[key])
		}
	}
	if now := database(t, from); !maps.Equal(before, now) {
		t.Error("the old store was changed")
	}

	// Once more is no error, and takes nothing over.
	*steps = nil
	if _, stop := runServer(t, o); stop() != nil || slices.Contains(*steps, "copied the store of "+from) {
		t.Errorf("started again with the flag: got %q", *steps)
	}
	other := o
	other.Takeover.Etcd = oldCluster(t)
	if err := Run(t.Context(), other); err == nil || !strings.Contains(err.Error(), "has the store of a cluster already, which stays as it is") {
		t.Errorf("another store: got %v", err)
	}
}

// kubeadmKeys is a directory of keys as kubeadm makes them, with RSA.
func kubeadmKeys(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	keep := func(name, kind string, der []byte) {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"ca", "sa"} {
		key, err := rsa.GenerateKey(rand.Reader, 2048)
		if err != nil {
			t.Fatal(err)
		}
		keep(name+".key", "RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(key))
		if name == "sa" {
			continue
		}
		template := &x509.Certificate{
			Subject: pkix.Name{CommonName: "kubernetes"}, SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(10 * 365 * 24 * time.Hour),
			KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment, BasicConstraintsValid: true, IsCA: true,
		}
		der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
		if err != nil {
			t.Fatal(err)
		}
		keep(name+".crt", "CERTIFICATE", der)
	}
	return dir
}

func TestKeysOfAnotherKubernetesAreTakenOver(t *testing.T) {
	t.Parallel()
	o, _ := taking(t, oldCluster(t))
	o.Takeover.PKI = kubeadmKeys(t)
	api, _ := runServer(t, o)
	given, err := os.ReadFile(filepath.Join(o.Takeover.PKI, "ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", up.AdminKubeconfig(o.DataDir))
	if err != nil || !bytes.Equal(config.CAData, given) {
		t.Errorf("the authority is another one, %v", err)
	}
	secret, err := api.CoreV1().Secrets("default").Get(t.Context(), "token", metav1.GetOptions{})
	if err != nil || string(secret.Data[corev1.ServiceAccountTokenKey]) != oldToken {
		t.Errorf("got %v, %v, want the token that was there: its key is, too", secret, err)
	}
}

func TestAddressesOfFurtherRangesFit(t *testing.T) {
	o, err := Options{Machine: Machine{NodeIP: netip.MustParseAddr("192.0.2.7")}}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	used := ranges{services: []netip.Addr{netip.MustParseAddr("10.96.0.1"), netip.MustParseAddr("10.43.1.2")}}
	if err := o.fits(&used); err == nil {
		t.Error("an address of no range fits")
	}
	used.more = []netip.Prefix{netip.MustParsePrefix("10.43.0.0/16")}
	if err := o.fits(&used); err != nil {
		t.Errorf("got %v, want that another ServiceCIDR has it", err)
	}
}

// TestWhatCannotBeTakenOverIsRefused, and nothing is made.
func TestWhatCannotBeTakenOverIsRefused(t *testing.T) {
	t.Parallel()
	good := oldCluster(t)
	lacking := func(names ...string) string {
		dir := kubeadmKeys(t)
		for _, name := range names {
			if err := os.Remove(filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
		}
		return dir
	}
	service := func(ip string) store.Op {
		s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "far", UID: types.UID(ip)}, Spec: corev1.ServiceSpec{ClusterIP: ip, ClusterIPs: []string{ip}, Ports: []corev1.ServicePort{{Port: 80, NodePort: 40000}}}}
		return stored(t, "/registry/services/specs/default/far", s)
	}
	kubeadm := stored(t, "/registry/configmaps/kube-system/kubeadm-config", &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "kubeadm-config"},
		Data:       map[string]string{"ClusterConfiguration": "networking: {dnsDomain: corp.local, podSubnet: 10.1.0.0/16, serviceSubnet: 10.96.0.0/12}\n"},
	})
	cidr := stored(t, "/registry/servicecidrs/kubernetes", &networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: "kubernetes"}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{"10.43.0.0/16"}}})
	for _, tc := range []struct {
		name   string
		change func(o *Options)
		says   string
	}{
		{"keys without a store", func(o *Options) { o.Takeover = Takeover{PKI: lacking()} }, "--from-etcd is missing"},
		{"a store in memory", func(o *Options) { o.Ephemeral = true }, "goes neither with --ephemeral nor with --etcd-servers"},
		{"no certificate", func(o *Options) { o.Takeover.PKI = lacking("ca.crt") }, "ca.crt is missing; want the files as kubeadm has them"},
		{"no key of the authority", func(o *Options) { o.Takeover.PKI = lacking("ca.key") }, "ca.key is missing: certificates could not be signed"},
		{"no key of accounts", func(o *Options) { o.Takeover.PKI = lacking("sa.key") }, "read the key that signs tokens"},
		{"nothing of a Kubernetes", func(o *Options) { o.Takeover.Etcd = emptyEtcd(t) }, "there is no Kubernetes in it"},
		{"encrypted secrets", func(o *Options) {
			o.Takeover.Etcd = oldCluster(t, store.Op{Key: "/registry/secrets/default/x", Value: []byte("k8s:enc:aescbc:v1:key1:xyz")})
		}, "secrets (1) are encrypted by its API servers"},
		{"other addresses", func(o *Options) { o.Takeover.Etcd = oldCluster(t, service("10.100.1.2"), kubeadm) }, "--service-cluster-ip-range=10.96.0.0/12 --cluster-domain=corp.local --service-node-port-range=30000-40000"},
		{"addresses that an object tells", func(o *Options) { o.Takeover.Etcd = oldCluster(t, service("10.43.1.2"), cidr) }, "--service-cluster-ip-range=10.43.0.0/16"},
		{"addresses that nobody tells", func(o *Options) { o.Takeover.Etcd = oldCluster(t, service("10.43.1.2")) }, "--service-cluster-ip-range=RANGE-WITH-10.43.1.2"},
	} {
		o, _ := taking(t, good)
		tc.change(&o)
		if err := Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: got %v, want %q", tc.name, err, tc.says)
		}
		for _, name := range []string{"etcd", "pki", "taking", "taken"} {
			if _, err := os.Stat(filepath.Join(o.DataDir, name)); err == nil {
				t.Errorf("%s: there is %s", tc.name, name)
			}
		}
	}
	o, _ := taking(t, good)
	o.Takeover.PKI = kubeadmKeys(t)
	if err := os.MkdirAll(filepath.Join(o.DataDir, "pki"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), "has keys and certificates already") {
		t.Errorf("keys beside others: got %v", err)
	}
}

// emptyEtcd is the data directory of an etcd that has something else.
func emptyEtcd(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	st, err := etcd.New(etcd.Options{Dir: dir, Name: "old", Log: slog.New(slog.DiscardHandler), NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	g := task.NewGroup(t.Context())
	g.Go("etcd", st.Run)
	_, err = st.Txn(t.Context(), store.Txn{Ops: []store.Op{{Key: "/skydns/local", Value: []byte("{}")}}})
	g.Cancel(context.Canceled)
	if err := errors.Join(err, g.Wait()); err != nil {
		t.Fatal(err)
	}
	return dir
}
