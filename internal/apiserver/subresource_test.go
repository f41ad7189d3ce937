package apiserver

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"slices"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/api/policy"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/resource"
)

func TestEveryDeclaredHandlerIsAnActionOrATunnel(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	check := func(what string, h resource.Handler) {
		if (f.handlers.actions[h] != nil) == (f.handlers.tunnels[h] != nil) {
			t.Errorf("handler %d of %s is in neither list or in both", h, what)
		}
	}
	for _, d := range f.o.Defs {
		if !d.Stored() {
			check(d.String(), d.Handler)
		}
		for i := range d.Sub {
			if d.Sub[i].Handler != resource.Generic {
				check(d.String()+"/"+d.Sub[i].Name, d.Sub[i].Handler)
			}
		}
	}
}

func runningPod(t *testing.T, f *fixture, name string) *corev1.Pod {
	t.Helper()
	pods := client.For(f.As(admin, "test"), core.Pods)
	pod, err := pods.Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", Labels: map[string]string{"app": "web"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	next := pod.DeepCopy()
	next.Status.Phase = corev1.PodRunning
	next.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	if pod, err = pods.UpdateStatus(t.Context(), next); err != nil {
		t.Fatal(err)
	}
	return pod
}

func TestEvictionSpendsTheDisruptionBudget(t *testing.T) {
	f := newFixture(t)
	pods := client.For(f.As(admin, "test"), core.Pods)
	budgets := client.For(f.As(admin, "test"), policy.PodDisruptionBudgets)
	one := intstr.FromInt32(1)
	pdb, err := budgets.Create(t.Context(), &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "b", Namespace: "default"},
		Spec:       policyv1.PodDisruptionBudgetSpec{MinAvailable: &one, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		runningPod(t, f, fmt.Sprint("p", i))
	}
	evict := func(name string) error {
		_, err := pods.Post(t.Context(), "default", name, "eviction", &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: name}})
		return err
	}
	if err := evict("p0"); !apierrors.IsTooManyRequests(err) || !strings.Contains(err.Error(), "Cannot evict pod as it would violate the pod's disruption budget.") {
		t.Errorf("before the controller has looked: got %v", err)
	}
	pdb = pdb.DeepCopy()
	pdb.Status = policyv1.PodDisruptionBudgetStatus{ObservedGeneration: pdb.Generation, DisruptionsAllowed: 1, CurrentHealthy: 2, DesiredHealthy: 1, ExpectedPods: 2}
	if _, err := budgets.UpdateStatus(t.Context(), pdb); err != nil {
		t.Fatal(err)
	}
	if err := evict("p0"); err != nil {
		t.Fatal(err)
	}
	if _, err := pods.Get(t.Context(), "default", "p0"); !apierrors.IsNotFound(err) {
		t.Errorf("the evicted pod, which is on no node: got %v", err)
	}
	pdb, err = budgets.Get(t.Context(), "default", "b")
	if _, noted := pdb.Status.DisruptedPods["p0"]; err != nil || pdb.Status.DisruptionsAllowed != 0 || !noted {
		t.Errorf("budget: %v %+v", err, pdb.Status)
	}
	err = evict("p1")
	if !apierrors.IsTooManyRequests(err) {
		t.Fatalf("second eviction: got %v", err)
	}
	causes := err.(apierrors.APIStatus).Status().Details.Causes
	if len(causes) != 1 || causes[0].Message != "The disruption budget b needs 1 healthy pods and has 2 currently" {
		t.Errorf("causes: %+v", causes)
	}
}

func TestEvictionsOfOlderClientsAreUnderstood(t *testing.T) {
	f := newFixture(t)
	runningPod(t, f, "a")
	const path = "/api/v1/namespaces/default/pods/a/eviction"
	f.must(400, "POST", path, `{"kind":"Eviction","apiVersion":"policy/v2","metadata":{"name":"a"}}`)
	f.must(422, "POST", path, `{"metadata":{"name":"a"},"deleteOptions":{"dryRun":["Some"]}}`)
	f.must(201, "POST", path, `{"metadata":{"name":"a"},"deleteOptions":{"dryRun":["All"]}}`)
	f.must(200, "GET", "/api/v1/namespaces/default/pods/a", "")
	f.must(201, "POST", path, `{"kind":"Eviction","apiVersion":"policy/v1beta1","metadata":{"name":"a"}}`)
	f.must(404, "GET", "/api/v1/namespaces/default/pods/a", "")
}

func TestBindingEndsANomination(t *testing.T) {
	f := newFixture(t)
	pod := runningPod(t, f, "a").DeepCopy()
	pod.Status.NominatedNodeName = "n2"
	pods := client.For(f.As(admin, "test"), core.Pods)
	if _, err := pods.UpdateStatus(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	f.must(201, "POST", "/api/v1/namespaces/default/pods/a/binding", `{"metadata":{"name":"a"},"target":{"name":"n1"}}`)
	bound, err := pods.Get(t.Context(), "default", "a")
	if err != nil || bound.Spec.NodeName != "n1" || bound.Status.NominatedNodeName != "" {
		t.Errorf("got %v, node %q, nominated %q", err, bound.Spec.NodeName, bound.Status.NominatedNodeName)
	}
}

func TestRequestsForCertificatesNameWhoMakesThem(t *testing.T) {
	f := newFixture(t)
	got := decoded[certificatesv1.CertificateSigningRequest](t, f.must(201, "POST", "/apis/certificates.k8s.io/v1/certificatesigningrequests",
		`{"metadata":{"name":"r"},"spec":{"username":"somebody","groups":["else"],"signerName":"example.com/own","usages":["client auth"],"request":"`+signingRequest(t)+`"}}`))
	if got.Spec.Username != "admin" || !slices.Equal(got.Spec.Groups, admin.Groups) {
		t.Errorf("got %q of %q, want the user of the request", got.Spec.Username, got.Spec.Groups)
	}
}

// signingRequest is a request for a certificate, in base64.
func signingRequest(t *testing.T) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: "x"}}, key)
	if err != nil {
		t.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}))
}

func TestPodsAreBoundByEitherResource(t *testing.T) {
	f := newFixture(t)
	for name, path := range map[string]string{"a": "/api/v1/namespaces/default/pods/a/binding", "b": "/api/v1/namespaces/default/bindings"} {
		runningPod(t, f, name)
		got := f.must(201, "POST", path, `{"kind":"Binding","apiVersion":"v1","metadata":{"name":"`+name+`","annotations":{"x":"y"}},"target":{"kind":"Node","name":"n1"}}`)
		if got != `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success","code":201}`+"\n" {
			t.Errorf("%s: got %s", path, got)
		}
		pod, err := client.For(f.As(admin, "test"), core.Pods).Get(t.Context(), "default", name)
		if err != nil || pod.Spec.NodeName != "n1" || pod.Annotations["x"] != "y" {
			t.Errorf("%s: %v %+v", path, err, pod)
		}
	}
	for body, want := range map[string]string{
		`{"metadata":{"name":"a"},"target":{"name":"n2"}}`:               `pod a is already assigned to node \"n1\"`,
		`{"metadata":{"name":"a"},"target":{"kind":"Pod","name":"n2"}}`:  `target.kind: Unsupported value: \"Pod\"`,
		`{"metadata":{"name":"a"},"target":{"kind":"Node"}}`:             `target.name: Required value`,
		`{"metadata":{"name":"other"},"target":{"name":"n2"}}`:           `the name of the object (other) does not match`,
		`{"metadata":{"name":"a","uid":"other"},"target":{"name":"n2"}}`: `Precondition failed: UID in precondition: other`,
	} {
		w := f.ask("POST", "/api/v1/namespaces/default/pods/a/binding", body)
		if w.Code < 400 || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s: got %d %s, want %s", body, w.Code, w.Body, want)
		}
	}
}

func TestNamespacesLeaveWhenTheyAreFinalized(t *testing.T) {
	f := newFixture(t)
	f.must(201, "POST", "/api/v1/namespaces", `{"metadata":{"name":"x"}}`)
	marked := decoded[corev1.Namespace](t, f.must(200, "DELETE", "/api/v1/namespaces/x", ""))
	if marked.DeletionTimestamp == nil || marked.DeletionGracePeriodSeconds != nil || marked.Status.Phase != corev1.NamespaceTerminating {
		t.Errorf("delete: got %+v", marked)
	}
	f.must(200, "PUT", "/api/v1/namespaces/x/finalize", `{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"x"},"spec":{"finalizers":[]}}`)
	f.must(404, "GET", "/api/v1/namespaces/x", "")
}

func TestServicesAreGivenTheirAddresses(t *testing.T) {
	f := newFixture(t, func(o *Options) {
		o.Settings = map[string]string{"service-cluster-ip-range": "10.96.0.0/28", "service-node-port-range": "30000-30001"}
	})
	services := client.For(f.As(admin, "test"), core.Services)
	service := func(name, ip string, kind corev1.ServiceType) *corev1.Service {
		return &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"},
			Spec:       corev1.ServiceSpec{Type: kind, ClusterIP: ip, Ports: []corev1.ServicePort{{Port: 80}}},
		}
	}
	first, err := services.Create(t.Context(), service("a", "10.96.0.10", ""))
	if err != nil || first.Spec.ClusterIP != "10.96.0.10" {
		t.Fatalf("create: %v %+v", err, first)
	}
	_, err = services.Create(t.Context(), service("b", "10.96.0.10", ""))
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "provided IP is already allocated") {
		t.Errorf("taken address: got %v", err)
	}
	seen := map[string]bool{"10.96.0.10": true}
	for i := range 5 {
		s, err := services.Create(t.Context(), service(fmt.Sprint("s", i), "", ""))
		if err != nil || seen[s.Spec.ClusterIP] {
			t.Fatalf("create: %v, address %s", err, s.Spec.ClusterIP)
		}
		seen[s.Spec.ClusterIP] = true
	}
	if err := services.Delete(t.Context(), "default", "a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if again, err := services.Create(t.Context(), service("b", "10.96.0.10", "")); err != nil || again.Spec.ClusterIP != "10.96.0.10" {
		t.Errorf("a freed address: %v", err)
	}
	for i := range 3 {
		_, err := services.Create(t.Context(), service(fmt.Sprint("n", i), "", corev1.ServiceTypeNodePort))
		if (err == nil) != (i < 2) {
			t.Errorf("node port %d of 2: got %v", i, err)
		}
	}
	dry, err := f.As(admin, "test").Do(t.Context(), &client.Request{
		Verb: "create", Def: core.Services.Def, Namespace: "default", Object: runtime.Object(service("dry", "10.96.0.12", "")), DryRun: true,
	})
	if err == nil {
		_ = dry
		if _, err := services.Create(t.Context(), service("dry", "10.96.0.12", "")); err != nil && !seen["10.96.0.12"] {
			t.Errorf("an address that a dry run took: %v", err)
		}
	}
}
