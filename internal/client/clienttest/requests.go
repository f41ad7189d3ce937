package clienttest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/api/apps"
	"github.com/kemudi/kemudi/internal/api/authentication"
	"github.com/kemudi/kemudi/internal/api/authorization"
	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/client"
)

func objects(b *bed) {
	made, err := b.maps().Create(b.ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", GenerateName: "a-"}, Data: map[string]string{"k": "v"}, BinaryData: map[string][]byte{"b": {0, 1}},
	})
	b.must(err)
	if made.UID == "" || made.ResourceVersion == "" || made.CreationTimestamp.IsZero() || !strings.HasPrefix(made.Name, "a-") || made.Kind != "" {
		b.Errorf("created: got %+v, want what the server sets and no kind", made)
	}
	got, err := b.maps().Get(b.ctx, "default", made.Name)
	b.must(err)
	if got.ResourceVersion != made.ResourceVersion || got.Data["k"] != "v" || got.BinaryData["b"][1] != 1 || got.APIVersion != "" {
		b.Errorf("read: got %+v, want %+v", got, made)
	}
	changed := got.DeepCopy()
	changed.Data["k"] = "w"
	changed, err = b.maps().Update(b.ctx, changed)
	b.must(err)
	if changed.Data["k"] != "w" || changed.ResourceVersion == made.ResourceVersion {
		b.Errorf("changed: got %+v", changed)
	}
	b.must(b.maps().Delete(b.ctx, "default", made.Name, metav1.DeleteOptions{}))
	if _, err := b.maps().Get(b.ctx, "default", made.Name); !apierrors.IsNotFound(err) {
		b.Errorf("deleted: got %v, want it not found", err)
	}
	node, err := client.For(b, core.Nodes).Create(b.ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}})
	b.must(err)
	node = node.DeepCopy()
	node.Status.Phase = corev1.NodeRunning
	if node, err = client.For(b, core.Nodes).UpdateStatus(b.ctx, node); err != nil || node.Status.Phase != corev1.NodeRunning {
		b.Errorf("status: got %+v, %v", node, err)
	}
}

func apiErrors(b *bed) {
	old := b.put("a")
	fresh := old.DeepCopy()
	fresh.Data = map[string]string{"k": "v"}
	_, err := b.maps().Update(b.ctx, fresh)
	b.must(err)
	_, missing := b.maps().Get(b.ctx, "default", "b")
	_, exists := b.maps().Create(b.ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a"}})
	stale := old.DeepCopy()
	stale.Data = map[string]string{"k": "x"}
	_, conflict := b.maps().Update(b.ctx, stale)
	_, invalid := client.For(b, core.Pods).Create(b.ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p"}})
	uid := types.UID("another")
	precondition := b.maps().Delete(b.ctx, "default", "a", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
	_, nowhere := b.maps().Create(b.ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}})
	_, page := b.maps().List(b.ctx, "default", metav1.ListOptions{Continue: "no token"})
	for _, c := range []struct {
		name   string
		err    error
		is     func(error) bool
		reason metav1.StatusReason
		code   int32
		want   string
	}{
		{"missing", missing, apierrors.IsNotFound, metav1.StatusReasonNotFound, 404, `configmaps "b" not found`},
		{"exists", exists, apierrors.IsAlreadyExists, metav1.StatusReasonAlreadyExists, 409, `configmaps "a" already exists`},
		{"conflict", conflict, apierrors.IsConflict, metav1.StatusReasonConflict, 409,
			`Operation cannot be fulfilled on configmaps "a": the object has been modified; please apply your changes to the latest version and try again`},
		{"invalid", invalid, apierrors.IsInvalid, metav1.StatusReasonInvalid, 422, `Pod "p" is invalid: spec.containers: Required value`},
		{"precondition", precondition, apierrors.IsConflict, metav1.StatusReasonConflict, 409, `the UID in the precondition (another) does not match the UID in record (`},
	} {
		var status apierrors.APIStatus
		if !errors.As(c.err, &status) || !c.is(c.err) || status.Status().Reason != c.reason || status.Status().Code != c.code || !strings.Contains(c.err.Error(), c.want) {
			b.Errorf("%s: got %T %v, want reason %s, code %d, %q", c.name, c.err, c.err, c.reason, c.code, c.want)
		}
	}
	if nowhere == nil || !apierrors.IsBadRequest(page) {
		b.Errorf("without a namespace: got %v; bad token: got %v; want errors", nowhere, page)
	}
	var status apierrors.APIStatus
	if !errors.As(invalid, &status) {
		b.Fatalf("invalid: got %T", invalid)
	}
	if d := status.Status().Details; d == nil || d.Kind != "Pod" || d.Name != "p" || len(d.Causes) == 0 || d.Causes[0].Field != "spec.containers" {
		b.Errorf("invalid: got details %+v, want the field", d)
	}
}

func emptyNames(b *bed) {
	b.put("a")
	_, get := b.maps().Get(b.ctx, "default", "")
	deleted := b.maps().Delete(b.ctx, "default", "", metav1.DeleteOptions{})
	_, patched := b.maps().Patch(b.ctx, "default", "", "", client.Patch{Type: types.MergePatchType, Data: []byte(`{}`)})
	for what, err := range map[string]error{"get": get, "delete": deleted, "patch": patched} {
		if !apierrors.IsNotFound(err) {
			b.Errorf("%s: got %v, want it not found", what, err)
		}
	}
	if list, err := b.maps().List(b.ctx, "default", metav1.ListOptions{}); err != nil || len(list) != 1 {
		b.Errorf("got %d config maps, %v, want the one that is there", len(list), err)
	}
}

func subresources(b *bed) {
	labels := map[string]string{"app": "web"}
	_, err := client.For(b, apps.ReplicaSets).Create(b.ctx, &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
		Spec: appsv1.ReplicaSetSpec{
			Replicas: ptr.To[int32](2), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}},
		},
	})
	b.must(err)
	answer, err := b.Do(b.ctx, &client.Request{Verb: "get", Def: apps.ReplicaSets.Def, Sub: "scale", Namespace: "default", Name: "web"})
	b.must(err)
	scale, ok := answer.(*autoscalingv1.Scale)
	if !ok || scale.Spec.Replicas != 2 || scale.Status.Selector != "app=web" {
		b.Fatalf("scale: got %#v", answer)
	}
	scale = scale.DeepCopy()
	scale.Spec.Replicas = 5
	answer, err = b.Do(b.ctx, &client.Request{Verb: "update", Def: apps.ReplicaSets.Def, Sub: "scale", Namespace: "default", Name: "web", Object: scale})
	b.must(err)
	if scale, ok := answer.(*autoscalingv1.Scale); !ok || scale.Spec.Replicas != 5 {
		b.Errorf("scaled: got %#v", answer)
	}
	answer, err = b.Do(b.ctx, &client.Request{
		Verb: "patch", Def: apps.ReplicaSets.Def, Sub: "scale", Namespace: "default", Name: "web", Patch: []byte(`{"spec":{"replicas":7}}`), PatchType: types.MergePatchType,
	})
	b.must(err)
	if scale, ok := answer.(*autoscalingv1.Scale); !ok || scale.Spec.Replicas != 7 {
		b.Errorf("patched scale: got %#v", answer)
	}
	if rs, err := client.For(b, apps.ReplicaSets).Get(b.ctx, "default", "web"); err != nil || *rs.Spec.Replicas != 7 {
		b.Errorf("got %v, %v, want 7 replicas", rs, err)
	}
	b.pod("p", "")
	pods := client.For(b, core.Pods)
	answer, err = pods.Post(b.ctx, "default", "p", "binding", &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Target: corev1.ObjectReference{Kind: "Node", Name: "n1"}})
	if s, ok := answer.(*metav1.Status); err != nil || !ok || s.Status != metav1.StatusSuccess {
		b.Errorf("binding: got %#v, %v", answer, err)
	}
	if pod, err := pods.Get(b.ctx, "default", "p"); err != nil || pod.Spec.NodeName != "n1" {
		b.Errorf("bound: got %v, %v", pod, err)
	}
	_, err = pods.Post(b.ctx, "default", "p", "binding", &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Target: corev1.ObjectReference{Kind: "Node", Name: "n2"}})
	if !apierrors.IsConflict(err) || !strings.Contains(fmt.Sprint(err), `already assigned to node "n1"`) {
		b.Errorf("bound again: got %v", err)
	}
	answer, err = pods.Post(b.ctx, "default", "p", "eviction", &policyv1.Eviction{
		ObjectMeta: metav1.ObjectMeta{Name: "p"}, DeleteOptions: &metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)},
	})
	if s, ok := answer.(*metav1.Status); err != nil || !ok || s.Status != metav1.StatusSuccess {
		b.Errorf("eviction: got %#v, %v", answer, err)
	}
	if _, err := b.Do(b.ctx, &client.Request{Verb: "get", Def: core.Pods.Def, Sub: "strange", Namespace: "default", Name: "p"}); !apierrors.IsNotFound(err) {
		b.Errorf("a subresource that is not there: got %v", err)
	}
}

func questions(b *bed) {
	review, err := client.For(b, authorization.SubjectAccessReviews).Create(b.ctx, &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{User: "jane", ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "get", Resource: "pods"}},
	})
	if err != nil || !review.Status.Allowed || review.Spec.User != "jane" {
		b.Errorf("access review: got %+v, %v, want it allowed where nobody authorizes", review, err)
	}
	self, err := client.For(b, authentication.SelfSubjectReviews).Create(b.ctx, &authenticationv1.SelfSubjectReview{})
	if err != nil || self.Status.UserInfo.Username == "" {
		b.Errorf("who am I: got %+v, %v", self, err)
	}
}

func patches(b *bed) {
	_, err := b.maps().Create(b.ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a"}, Data: map[string]string{"c": "1"}})
	b.must(err)
	for _, c := range []struct {
		patch client.Patch
		want  string
	}{
		{client.Patch{Type: types.MergePatchType, Data: []byte(`{"data":{"m":"1"}}`)}, "m"},
		{client.Patch{Type: types.StrategicMergePatchType, Data: []byte(`{"data":{"s":"1"}}`)}, "s"},
		{client.Patch{Type: types.JSONPatchType, Data: []byte(`[{"op":"add","path":"/data/j","value":"1"}]`)}, "j"},
		{client.Patch{Type: types.ApplyPatchType, Data: []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"y":"1"}}`), FieldManager: "applier"}, "y"},
	} {
		cm, err := b.maps().Patch(b.ctx, "default", "a", "", c.patch)
		if err != nil || cm.Data[c.want] != "1" {
			b.Errorf("%s: got %v, %v, want the key %s", c.patch.Type, cm, err, c.want)
		}
	}
	cm, err := b.maps().Get(b.ctx, "default", "a")
	b.must(err)
	var managers []string
	for _, m := range cm.ManagedFields {
		managers = append(managers, m.Manager+" "+string(m.Operation))
	}
	slices.Sort(managers)
	if want := []string{"applier Apply", Agent + " Update"}; !slices.Equal(managers, want) {
		b.Errorf("managers: got %q, want %q", managers, want)
	}
	other := client.Patch{Type: types.ApplyPatchType, Data: []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"y":"2"}}`), FieldManager: "other"}
	if _, err := b.maps().Patch(b.ctx, "default", "a", "", other); !apierrors.IsConflict(err) || !strings.Contains(err.Error(), `conflict with "applier": .data.y`) {
		b.Errorf("apply of another's field: got %v, want a conflict", err)
	}
	other.Force = ptr.To(true)
	if cm, err := b.maps().Patch(b.ctx, "default", "a", "", other); err != nil || cm.Data["y"] != "2" {
		b.Errorf("apply with force: got %v, %v", cm, err)
	}
}

func dryRuns(b *bed) {
	old := b.put("a")
	for _, r := range []*client.Request{
		{Verb: "create", Name: "b", Object: &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "b"}}},
		{Verb: "update", Name: "a", Object: &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a"}, Data: map[string]string{"k": "v"}}},
		{Verb: "patch", Name: "a", PatchType: types.MergePatchType, Patch: []byte(`{"data":{"k":"v"}}`)},
		{Verb: "delete", Name: "a"},
	} {
		r.Def, r.Namespace, r.DryRun = core.ConfigMaps.Def, "default", true
		if _, err := b.Do(b.ctx, r); err != nil {
			b.Errorf("%s: %v", r.Verb, err)
		}
	}
	list, err := b.maps().List(b.ctx, "default", metav1.ListOptions{})
	if err != nil || len(list) != 1 || list[0].ResourceVersion != old.ResourceVersion {
		b.Errorf("got %v, %v, want only what was there", list, err)
	}
}

func deletions(b *bed) {
	made := b.put("a")
	last := b.put("b")
	answer, err := b.Do(b.ctx, &client.Request{Verb: "delete", Def: core.ConfigMaps.Def, Namespace: "default", Name: "a"})
	b.must(err)
	gone, ok := answer.(*corev1.ConfigMap)
	if !ok || gone.UID != made.UID || gone.Name != "a" || gone.Namespace != "default" || number(gone.ResourceVersion) <= number(last.ResourceVersion) {
		b.Errorf("got %#v, want the object at the revision of its deletion, after %s", answer, last.ResourceVersion)
	}
	kept, err := b.maps().Create(b.ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "kept", Finalizers: []string{"example.com/keep"}}})
	b.must(err)
	answer, err = b.Do(b.ctx, &client.Request{Verb: "delete", Def: core.ConfigMaps.Def, Namespace: "default", Name: "kept"})
	b.must(err)
	if cm, ok := answer.(*corev1.ConfigMap); !ok || cm.DeletionTimestamp == nil || cm.UID != kept.UID {
		b.Errorf("kept: got %#v, want it marked", answer)
	}
	policy := metav1.DeletePropagationForeground
	b.put("owner")
	b.must(b.maps().Delete(b.ctx, "default", "owner", metav1.DeleteOptions{PropagationPolicy: &policy}))
	if cm, err := b.maps().Get(b.ctx, "default", "owner"); err != nil || !slices.Contains(cm.Finalizers, metav1.FinalizerDeleteDependents) {
		b.Errorf("foreground: got %v, %v", cm, err)
	}
	b.pod("p", "n1")
	answer, err = b.Do(b.ctx, &client.Request{Verb: "delete", Def: core.Pods.Def, Namespace: "default", Name: "p", Delete: metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](7)}})
	b.must(err)
	if pod, ok := answer.(*corev1.Pod); !ok || pod.DeletionGracePeriodSeconds == nil || *pod.DeletionGracePeriodSeconds != 7 {
		b.Errorf("pod: got %#v, want it to leave in 7 s", answer)
	}
}

func collections(b *bed) {
	b.put("a", "team", "red")
	b.put("b", "team", "red")
	b.put("c", "team", "blue")
	answer, err := b.Do(b.ctx, &client.Request{
		Verb: "deletecollection", Def: core.ConfigMaps.Def, Namespace: "default", List: metav1.ListOptions{LabelSelector: "team=red"},
	})
	if answer != nil || err != nil {
		b.Errorf("got %v, %v, want nothing", answer, err)
	}
	list, err := b.maps().List(b.ctx, "default", metav1.ListOptions{})
	if err != nil || len(list) != 1 || list[0].Name != "c" {
		b.Errorf("got %v, %v, want c to be left", list, err)
	}
}

func lists(b *bed) {
	b.makeNamespace("other")
	for i := range 7 {
		b.put(fmt.Sprint("m", i), "odd", fmt.Sprint(i%2))
	}
	_, err := b.maps().Create(b.ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "other", Name: "x"}})
	b.must(err)
	for _, c := range []struct {
		namespace string
		o         metav1.ListOptions
		want      int
	}{
		{"default", metav1.ListOptions{}, 7}, {"", metav1.ListOptions{}, 8}, {"other", metav1.ListOptions{}, 1}, {"nowhere", metav1.ListOptions{}, 0},
		{"", metav1.ListOptions{LabelSelector: "odd=1"}, 3}, {"default", metav1.ListOptions{FieldSelector: "metadata.name=m3"}, 1},
		{"", metav1.ListOptions{FieldSelector: "metadata.namespace=other"}, 1},
	} {
		got, err := b.maps().List(b.ctx, c.namespace, c.o)
		if err != nil || len(got) != c.want {
			b.Errorf("namespace %q, %+v: got %d, %v, want %d", c.namespace, c.o, len(got), err, c.want)
		}
	}
	r := &client.Request{Verb: "list", Def: core.ConfigMaps.Def, Namespace: "default", List: metav1.ListOptions{Limit: 3}}
	page, err := b.List(b.ctx, r)
	b.must(err)
	if len(page.Items) != 3 || page.Continue == "" || page.Remaining == nil || *page.Remaining != 4 {
		b.Errorf("first page: got %d, continue %q, remaining %v", len(page.Items), page.Continue, page.Remaining)
	}
	rev := page.ResourceVersion
	b.must(b.maps().Delete(b.ctx, "default", "m6", metav1.DeleteOptions{}))
	b.put("m7")
	names := []string{}
	for {
		for _, obj := range page.Items {
			names = append(names, obj.GetName())
		}
		if page.Continue == "" {
			break
		}
		r.List.Continue = page.Continue
		page, err = b.List(b.ctx, r)
		b.must(err)
		if page.ResourceVersion != rev {
			b.Errorf("page: got revision %s, want %s", page.ResourceVersion, rev)
		}
	}
	if want := []string{"m0", "m1", "m2", "m3", "m4", "m5", "m6"}; !slices.Equal(names, want) {
		b.Errorf("pages: got %v, want %v", names, want)
	}
}

func contexts(b *bed) {
	ctx, cancel := context.WithCancel(b.ctx)
	cancel()
	if _, err := b.maps().Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "never"}}); err == nil {
		b.Error("got no error of a request whose context had ended")
	}
	if list, err := b.maps().List(b.ctx, "default", metav1.ListOptions{}); err != nil || len(list) != 0 {
		b.Errorf("got %v, %v, want nothing made", list, err)
	}
}

func paths(b *bed) {
	b.put("one")
	got, err := b.Do(b.ctx, &client.Request{Verb: "get", Path: "/api/v1/namespaces/default/configmaps?fieldSelector=metadata.name%3Done&limit=1"})
	b.must(err)
	raw, ok := got.(*runtime.Unknown)
	if !ok || raw.ContentType != runtime.ContentTypeJSON || !strings.HasPrefix(string(raw.Raw), `{"kind":"ConfigMapList"`) || !strings.Contains(string(raw.Raw), `"name":"one"`) {
		b.Errorf("a list by its path: got %+v", got)
	}
	for _, path := range []string{"/apis/metrics.example.com", "/apis/metrics.example.com/v1/x", "/api/v1/namespaces/default/configmaps/none", "/nowhere"} {
		if got, err := b.Do(b.ctx, &client.Request{Verb: "get", Path: path}); !apierrors.IsNotFound(err) {
			b.Errorf("%s: got %v, %v, want it not found", path, got, err)
		}
	}
}
