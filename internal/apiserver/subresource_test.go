package apiserver

import (
	"context"
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
	"sync"
	"sync/atomic"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kemudi/kemudi/internal/admission"
	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/api/policy"
	"github.com/kemudi/kemudi/internal/apiserver/write"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/trace"
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
		if !d.Stored() && !d.Computed {
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
	if len(causes) != 1 || causes[0].Message != "The disruption budget b does not allow evicting pods currently" {
		t.Errorf("causes: %+v", causes)
	}
}

// budget makes a disruption budget of all pods of an app and gives it a status.
func (f *fixture) budget(t *testing.T, name string, status policyv1.PodDisruptionBudgetStatus) {
	t.Helper()
	budgets := client.For(f.As(admin, "test"), policy.PodDisruptionBudgets)
	b, err := budgets.Create(t.Context(), &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: new(intstr.FromInt32(1)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	b = b.DeepCopy()
	b.Status = status
	if _, err := budgets.UpdateStatus(t.Context(), b); err != nil {
		t.Fatal(err)
	}
}

func TestEvictionsAreRefusedInUpstreamsWords(t *testing.T) {
	f := newFixture(t)
	runningPod(t, f, "a")
	many := map[string]metav1.Time{}
	for i := range 2001 {
		many[fmt.Sprint("p", i)] = metav1.Now()
	}
	failed := metav1.Condition{
		Type: policyv1.DisruptionAllowedCondition, Status: metav1.ConditionFalse, LastTransitionTime: metav1.Now(), Reason: policyv1.SyncFailedReason, Message: "no idea",
	}
	other := failed
	other.Reason = "Holiday"
	const tooMany = "Cannot evict pod as it would violate the pod's disruption budget."
	for _, c := range []struct {
		name                 string
		status               policyv1.PodDisruptionBudgetStatus
		code                 int
		message, cause, wait string
	}{
		{"the controller has not looked", policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: 1}, 429, tooMany, "The disruption budget b is still being processed by the server.", "10"},
		{"too few are healthy", policyv1.PodDisruptionBudgetStatus{ObservedGeneration: 1, CurrentHealthy: 2, DesiredHealthy: 3}, 429, tooMany, "The disruption budget b needs 3 healthy pods and has 2 currently", ""},
		{"enough are healthy, but all are spent", policyv1.PodDisruptionBudgetStatus{ObservedGeneration: 1, CurrentHealthy: 4, DesiredHealthy: 3}, 429, tooMany, "The disruption budget b does not allow evicting pods currently", ""},
		{"it could not be counted", policyv1.PodDisruptionBudgetStatus{ObservedGeneration: 1, Conditions: []metav1.Condition{failed}}, 429, tooMany, "The disruption budget b does not allow evicting pods currently because it failed sync: no idea", ""},
		{"its condition says why", policyv1.PodDisruptionBudgetStatus{ObservedGeneration: 1, CurrentHealthy: 2, Conditions: []metav1.Condition{other}}, 429, tooMany, "The disruption budget b does not allow evicting pods currently (Holiday): no idea", ""},
		{"too many are unconfirmed", policyv1.PodDisruptionBudgetStatus{ObservedGeneration: 1, DisruptionsAllowed: 1, DisruptedPods: many}, 403, `poddisruptionbudget.policy "b" is forbidden: DisruptedPods map too big - too many evictions not confirmed by PDB controller`, "The disruption budget b does not allow evicting pods currently: too many pending evictions not confirmed by PDB controller", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			f.budget(t, "b", c.status)
			defer f.must(200, "DELETE", "/apis/policy/v1/namespaces/default/poddisruptionbudgets/b", "")
			w := f.ask("POST", "/api/v1/namespaces/default/pods/a/eviction", `{"kind":"Eviction","apiVersion":"policy/v1","metadata":{"name":"a"}}`)
			got := decoded[metav1.Status](t, w.Body.String())
			if w.Code != c.code || got.Code != int32(c.code) || got.Message != c.message || w.Header().Get("Retry-After") != c.wait {
				t.Errorf("got %d %q, Retry-After %q; want %d %q, %q", w.Code, got.Message, w.Header().Get("Retry-After"), c.code, c.message, c.wait)
			}
			reason := metav1.StatusReasonForbidden
			if c.code == 429 {
				trace.Proves(t, "C-023")
				reason = metav1.StatusReasonTooManyRequests
			}
			if got.Reason != reason || len(got.Details.Causes) != 1 || got.Details.Causes[0].Type != "DisruptionBudget" || got.Details.Causes[0].Message != c.cause {
				t.Errorf("got %s, %+v; want cause %q", got.Reason, got.Details, c.cause)
			}
		})
	}
	f.budget(t, "b", policyv1.PodDisruptionBudgetStatus{ObservedGeneration: 1, DisruptionsAllowed: 5})
	f.budget(t, "c", policyv1.PodDisruptionBudgetStatus{ObservedGeneration: 1, DisruptionsAllowed: 5})
	several := decoded[metav1.Status](t, f.must(500, "POST", "/api/v1/namespaces/default/pods/a/eviction", `{"metadata":{"name":"a"}}`))
	if several.Message != "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support." || several.Code != 500 || several.Status != "Failure" {
		t.Errorf("two budgets: got %+v", several)
	}
	unnamed := decoded[metav1.Status](t, f.must(400, "POST", "/api/v1/namespaces/default/pods/a/eviction", `{"metadata":{"name":"b"}}`))
	if unnamed.Message != "name in URL does not match name in Eviction object" {
		t.Errorf("another name: got %+v", unnamed)
	}
}

func TestEvictionsSideBySideStayWithinTheBudget(t *testing.T) {
	f := newFixture(t)
	const pods, allowed = 24, 5
	for i := range pods {
		runningPod(t, f, fmt.Sprint("p", i))
	}
	f.budget(t, "b", policyv1.PodDisruptionBudgetStatus{ObservedGeneration: 1, DisruptionsAllowed: allowed, CurrentHealthy: pods, DesiredHealthy: pods - allowed, ExpectedPods: pods})
	api := client.For(f.As(admin, "test"), core.Pods)
	var evicted atomic.Int64
	var wg sync.WaitGroup
	for i := range pods {
		wg.Go(func() {
			name := fmt.Sprint("p", i)
			_, err := api.Post(t.Context(), "default", name, "eviction", &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: name}})
			switch {
			case err == nil:
				evicted.Add(1)
			case !apierrors.IsTooManyRequests(err):
				t.Errorf("%s: %v", name, err)
			}
		})
	}
	wg.Wait()
	left, err := api.List(t.Context(), "default", metav1.ListOptions{})
	trace.Proves(t, "DIS-016")
	if err != nil || evicted.Load() != allowed || len(left) != pods-allowed {
		t.Errorf("got %d evicted, %d left, %v; want %d and %d", evicted.Load(), len(left), err, allowed, pods-allowed)
	}
}

// healing is an admission that makes pods ready at the moment they are deleted.
type healing struct {
	write.NoAdmission
	heal func(name string) error
}

func (h *healing) Validate(_ context.Context, a *admission.Attributes) error {
	if a.Operation == "DELETE" && a.Def == core.Pods.Def {
		return h.heal(a.Name)
	}
	return nil
}

func TestUnhealthyPodThatGetsWellMeanwhileIsNotEvicted(t *testing.T) {
	h := &healing{}
	f := newFixture(t, func(o *Options) { o.Admission = h })
	pods := client.For(f.As(admin, "test"), core.Pods)
	state := func(name string, phase corev1.PodPhase, ready corev1.ConditionStatus) error {
		patch := fmt.Appendf(nil, `{"status":{"phase":%q,"conditions":[{"type":"Ready","status":%q}]}}`, phase, ready)
		_, err := pods.Patch(t.Context(), "default", name, "status", client.Patch{Type: types.StrategicMergePatchType, Data: patch})
		return err
	}
	healed := map[string]bool{}
	h.heal = func(name string) error {
		if healed[name] {
			return nil
		}
		healed[name] = true
		return state(name, corev1.PodRunning, corev1.ConditionTrue)
	}
	for name, phase := range map[string]corev1.PodPhase{"sick": corev1.PodRunning, "starts": corev1.PodPending} {
		runningPod(t, f, name)
		if err := state(name, phase, corev1.ConditionFalse); err != nil {
			t.Fatal(err)
		}
	}
	f.budget(t, "b", policyv1.PodDisruptionBudgetStatus{ObservedGeneration: 1, CurrentHealthy: 1, DesiredHealthy: 1, ExpectedPods: 2})
	for name, cause := range map[string]string{
		"sick":   "The disruption budget b is still being processed by the server.",
		"starts": "The disruption budget b needs 1 healthy pods and has 1 currently",
	} {
		got := f.must(429, "POST", "/api/v1/namespaces/default/pods/"+name+"/eviction", `{"metadata":{"name":"`+name+`"}}`)
		if !strings.Contains(got, cause) || !healed[name] {
			t.Errorf("%s: got %s, healed %v; want %q", name, got, healed[name], cause)
		}
		f.must(200, "GET", "/api/v1/namespaces/default/pods/"+name, "")
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
