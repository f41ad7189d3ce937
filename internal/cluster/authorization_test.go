package cluster

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/kemudi/kemudi/test/wait"
)

// oracle is a webhook that says who may do what: friends may list pods, foes nothing; about others
// it has no opinion, and with some questions it has its troubles.
type oracle struct {
	*httptest.Server
	mu    sync.Mutex
	asked []authorizationv1.SubjectAccessReviewSpec
}

func newOracle(t *testing.T) *oracle {
	t.Helper()
	o := &oracle{}
	o.Server = httptest.NewUnstartedServer(http.HandlerFunc(o.answer))
	o.Config.ErrorLog = log.New(io.Discard, "", 0)
	o.StartTLS()
	t.Cleanup(o.Close)
	return o
}

func (o *oracle) answer(w http.ResponseWriter, r *http.Request) {
	var q authorizationv1.SubjectAccessReview
	if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	o.mu.Lock()
	o.asked = append(o.asked, q.Spec)
	o.mu.Unlock()
	switch q.Spec.User {
	case "friend":
		q.Status.Allowed = q.Spec.ResourceAttributes != nil && q.Spec.ResourceAttributes.Resource == "pods" && q.Spec.ResourceAttributes.Verb == "list"
		q.Status.Reason = "a friend"
	case "foe":
		q.Status.Denied, q.Status.Reason = true, "a foe"
	case "liar":
		q.Status.Denied, q.Status.Allowed = true, true
	case "slow":
		<-r.Context().Done()
		return
	case "breaks":
		http.Error(w, "out of order", http.StatusTeapot)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(q)
}

// about are the questions about a user.
func (o *oracle) about(user string) (list []authorizationv1.SubjectAccessReviewSpec) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, q := range o.asked {
		if q.User == user {
			list = append(list, q)
		}
	}
	return list
}

// kubeconfig leads to the webhook.
func (o *oracle) kubeconfig(t *testing.T, dir string) string {
	t.Helper()
	c := clientcmdapi.NewConfig()
	c.Clusters["o"] = &clientcmdapi.Cluster{Server: o.URL + "/authorize", CertificateAuthorityData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: o.Certificate().Raw})}
	c.Contexts["o"] = &clientcmdapi.Context{Cluster: "o"}
	c.CurrentContext = "o"
	path := filepath.Join(dir, "webhook.kubeconfig")
	if err := clientcmd.WriteToFile(*c, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// authorizedBed is a server with an AuthorizationConfiguration, asked by the administrator for others.
type authorizedBed struct {
	*joinBed
	file string
}

// as is the API as somebody sees it.
func (b *authorizedBed) as(user string, groups ...string) kubernetes.Interface {
	b.Helper()
	c := b.admin()
	c.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: groups}
	return b.client(c)
}

// configure exchanges the file at once: one that is being written, and empty, may be read, and counts as a bad one.
func (b *authorizedBed) configure(text string) {
	b.Helper()
	write(b.T, b.file, "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\nauthorizers:\n"+text)
}

// listing is what a user is told who lists pods, with a selector.
func (b *authorizedBed) listing(user string) string {
	b.Helper()
	_, err := b.as(user).CoreV1().Pods("default").List(b.Context(), metav1.ListOptions{FieldSelector: "spec.nodeName=one", LabelSelector: "app=web"})
	if err == nil {
		return "allowed"
	}
	if !apierrors.IsForbidden(err) {
		return "failed: " + err.Error()
	}
	return err.Error()
}

func TestWebhooksOfAConfigurationSayWhoMayDoWhat(t *testing.T) {
	t.Parallel()
	o, dir := newOracle(t), t.TempDir()
	b := &authorizedBed{file: filepath.Join(dir, "authorization.yaml")}
	hooked := func(name, policy, conditions string) string {
		return fmt.Sprintf("- type: Webhook\n  name: %s\n  webhook: {timeout: 2s, subjectAccessReviewVersion: v1, matchConditionSubjectAccessReviewVersion: v1, failurePolicy: %s, "+
			"authorizedTTL: 1h, unauthorizedTTL: 1h, connectionInfo: {type: KubeConfigFile, kubeConfigFile: %q}, matchConditions: [%s]}\n", name, policy, o.kubeconfig(t, dir), conditions)
	}
	const roles = "- {type: Node, name: node}\n- {type: RBAC, name: rbac}\n"
	b.joinBed = &joinBed{portBed: &portBed{T: t}}
	b.configure(hooked("strict", "Deny", `{expression: "request.user != 'stranger' && !request.user.startsWith('system:')"}`) + roles)
	b.joinBed = newJoinBed(t, func(opts *Options) {
		opts.API.Authorization.ConfigFile = b.file
		b.must(opts.API.Authorization.Check())
	})
	b.g.Go("authorization", b.s.followAuthorization)

	const forbidden = `pods is forbidden: User "%s" cannot list resource "pods" in API group "" in the namespace "default"`
	for user, want := range map[string]string{
		"friend":   "allowed",
		"foe":      ": a foe",
		"liar":     "",
		"slow":     "",
		"breaks":   "",
		"stranger": "",
		"unknown":  "",
	} {
		if want != "allowed" {
			want = fmt.Sprintf(forbidden, user) + want
		}
		if got := b.listing(user); got != want {
			t.Errorf("%s: got %s, want %s", user, got, want)
		}
	}
	// The question has the selectors; an answer holds for an hour.
	b.listing("friend")
	asked := o.about("friend")
	if len(asked) != 1 {
		t.Fatalf("asked about the friend %d times, want once", len(asked))
	}
	got, want := asked[0].ResourceAttributes, authorizationv1.ResourceAttributes{
		Namespace: "default", Verb: "list", Version: "v1", Resource: "pods",
		FieldSelector: &authorizationv1.FieldSelectorAttributes{Requirements: []metav1.FieldSelectorRequirement{{Key: "spec.nodeName", Operator: metav1.FieldSelectorOpIn, Values: []string{"one"}}}},
		LabelSelector: &authorizationv1.LabelSelectorAttributes{Requirements: []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpIn, Values: []string{"web"}}}},
	}
	if fmt.Sprint(got.FieldSelector, got.LabelSelector) != fmt.Sprint(want.FieldSelector, want.LabelSelector) || got.Verb != want.Verb || got.Namespace != want.Namespace || got.Version != want.Version {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if len(o.about("stranger")) > 0 {
		t.Error("the webhook was asked about who its conditions leave out")
	}
	// Nobody asks about the masters, and about parts of this process.
	for _, q := range o.asked {
		if strings.HasPrefix(q.User, "system:") || slices.Contains(q.Groups, "system:masters") {
			t.Errorf("the webhook was asked about %s, %v", q.User, q.Groups)
		}
	}
	b.reviews()

	// What the roles say is not asked for while a webhook denies; nobody denies after the change.
	b.configure(hooked("lenient", "NoOpinion", "") + roles)
	b.grant("slow")
	wait.Until(t, func() error {
		if got := b.listing("slow"); got != "allowed" {
			return fmt.Errorf("got %s, want what the roles say", got)
		}
		return nil
	})
	b.configure("- {type: RBAC, name: roles}\n")
	wait.Until(t, func() error {
		body, err := b.client(b.admin()).CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
		if err == nil && !strings.Contains(string(body), `apiserver_authorization_config_controller_automatic_reloads_total{apiserver_id_hash="",status="failure"} 1`) {
			err = errors.New("the metrics do not tell of one bad file")
		}
		return err
	})
	if got := b.listing("friend"); got != "allowed" {
		t.Errorf("after a bad file: got %s, want what held before", got)
	}
}

// grant lets a user list pods by a role.
func (b *authorizedBed) grant(user string) {
	b.Helper()
	k := b.client(b.admin())
	_, err := k.RbacV1().RoleBindings("default").Create(b.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "viewer"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: user}},
	}, metav1.CreateOptions{})
	b.must(err)
}

// reviews asks the server's own reviews, which go by the same authorizers.
func (b *authorizedBed) reviews() {
	b.Helper()
	pods := &authorizationv1.ResourceAttributes{Namespace: "default", Verb: "list", Resource: "pods", FieldSelector: &authorizationv1.FieldSelectorAttributes{RawSelector: "spec.nodeName=two,broken"}}
	reviews := b.client(b.admin()).AuthorizationV1()
	r, err := reviews.SubjectAccessReviews().Create(b.Context(), &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: "friend", ResourceAttributes: pods}}, metav1.CreateOptions{})
	b.must(err)
	if want := (authorizationv1.SubjectAccessReviewStatus{Allowed: true, Reason: "a friend", EvaluationError: "spec.resourceAttributes.fieldSelector ignored due to parse error"}); r.Status != want {
		b.Errorf("got %+v, want %+v", r.Status, want)
	}
	local, err := reviews.LocalSubjectAccessReviews("default").Create(b.Context(), &authorizationv1.LocalSubjectAccessReview{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default"}, Spec: authorizationv1.SubjectAccessReviewSpec{User: "foe", ResourceAttributes: pods},
	}, metav1.CreateOptions{})
	b.must(err)
	if !local.Status.Denied || local.Status.Allowed || local.Status.Reason != "a foe" {
		b.Errorf("got %+v, want a denial", local.Status)
	}
	rules, err := b.as("stranger", "system:authenticated").AuthorizationV1().SelfSubjectRulesReviews().Create(b.Context(), &authorizationv1.SelfSubjectRulesReview{
		Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: "default"},
	}, metav1.CreateOptions{})
	b.must(err)
	if s := rules.Status; !s.Incomplete || s.EvaluationError != "webhook authorizer does not support user rule resolution" || len(s.ResourceRules) == 0 {
		b.Errorf("got %+v, want the rules of roles, and that they are not all", s)
	}
}

func TestControllersWorkWhateverTheModeIs(t *testing.T) {
	t.Parallel()
	b := newJoinBed(t, func(o *Options) { o.API.Authorization.Modes = []string{"AlwaysDeny"} })
	k := b.client(b.admin())
	_, err := k.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}, metav1.CreateOptions{})
	b.must(err)
	wait.Until(t, func() error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := k.CoreV1().ServiceAccounts("shop").Get(ctx, "default", metav1.GetOptions{}) // a controller makes it
		return err
	})
	c := b.admin()
	c.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:kube-system:service-account-controller", Groups: []string{"system:serviceaccounts", "system:authenticated"}}
	if _, err := b.client(c).CoreV1().ServiceAccounts("shop").List(t.Context(), metav1.ListOptions{}); err == nil || !strings.HasSuffix(err.Error(), "Everything is forbidden.") {
		t.Errorf("the same account from outside: got %v, want a refusal", err)
	}
}
