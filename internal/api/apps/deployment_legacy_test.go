package apps

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	appsv1beta1 "k8s.io/api/apps/v1beta1"
	appsv1beta2 "k8s.io/api/apps/v1beta2"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	extensionsv1beta1 "k8s.io/api/extensions/v1beta1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/trace"
)

func version(t *testing.T, def *resource.Def, group, version string) *resource.VersionDef {
	t.Helper()
	for i := range def.Versions {
		if v := &def.Versions[i]; v.Group == group && v.Version == version {
			return v
		}
	}
	t.Fatalf("%s is not served in %s/%s", def, group, version)
	return nil
}

func deployment() *appsv1.Deployment {
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: "1", ResourceVersion: "5"},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To[int32](3),
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
		},
		Status: appsv1.DeploymentStatus{Replicas: 2},
	}
}

func TestEveryVersionHasTheScaleOfItsTime(t *testing.T) {
	t.Parallel()
	meta := metav1.ObjectMeta{Name: "web", Namespace: "default", UID: "1", ResourceVersion: "5"}
	selector := map[string]string{"app": "web"}
	cases := map[string]struct {
		group, version string
		want, larger   runtime.Object
	}{
		"apps/v1": {
			want:   &autoscalingv1.Scale{ObjectMeta: meta, Spec: autoscalingv1.ScaleSpec{Replicas: 3}, Status: autoscalingv1.ScaleStatus{Replicas: 2, Selector: "app=web"}},
			larger: &autoscalingv1.Scale{Spec: autoscalingv1.ScaleSpec{Replicas: 9}},
		},
		"apps/v1beta2": {
			"apps", "v1beta2",
			&appsv1beta2.Scale{ObjectMeta: meta, Spec: appsv1beta2.ScaleSpec{Replicas: 3}, Status: appsv1beta2.ScaleStatus{Replicas: 2, Selector: selector, TargetSelector: "app=web"}},
			&appsv1beta2.Scale{Spec: appsv1beta2.ScaleSpec{Replicas: 9}},
		},
		"apps/v1beta1": {
			"apps", "v1beta1",
			&appsv1beta1.Scale{ObjectMeta: meta, Spec: appsv1beta1.ScaleSpec{Replicas: 3}, Status: appsv1beta1.ScaleStatus{Replicas: 2, Selector: selector, TargetSelector: "app=web"}},
			&appsv1beta1.Scale{Spec: appsv1beta1.ScaleSpec{Replicas: 9}},
		},
		"extensions/v1beta1": {
			"extensions", "v1beta1",
			&extensionsv1beta1.Scale{ObjectMeta: meta, Spec: extensionsv1beta1.ScaleSpec{Replicas: 3}, Status: extensionsv1beta1.ScaleStatus{Replicas: 2, Selector: selector, TargetSelector: "app=web"}},
			&extensionsv1beta1.Scale{Spec: extensionsv1beta1.ScaleSpec{Replicas: 9}},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			sub := Deployments.Subresource("scale")
			if c.group != "" {
				sub = version(t, Deployments.Def, c.group, c.version).Subresource("scale")
				if sub.Body.Group != c.group || sub.Body.Version != c.version || sub.Body.Kind != "Scale" {
					t.Errorf("body is %s/%s %s", sub.Body.Group, sub.Body.Version, sub.Body.Kind)
				}
			}
			d := deployment()
			if got := sub.Get(d); !equality.Semantic.DeepEqual(got, c.want) {
				t.Errorf("got  %+v\nwant %+v", got, c.want)
			}
			if err := sub.Set(d, c.larger); err != nil || *d.Spec.Replicas != 9 {
				t.Errorf("replicas %d, error %v", *d.Spec.Replicas, err)
			}
		})
	}
}

func TestScaleOfASetSelectorHasNoMap(t *testing.T) {
	t.Parallel()
	d := deployment()
	d.Spec.Selector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: "In", Values: []string{"a", "b"}}}}
	got := version(t, Deployments.Def, "extensions", "v1beta1").Subresource("scale").Get(d).(*extensionsv1beta1.Scale)
	if got.Status.Selector != nil || got.Status.TargetSelector != "app in (a,b)" {
		t.Errorf("got %+v", got.Status)
	}
}

func TestARollbackIsTakenDownInTheDeployment(t *testing.T) {
	trace.Proves(t, "DEP-104")
	sub := version(t, Deployments.Def, "extensions", "v1beta1").Subresource("rollback")
	d := deployment()
	body := &extensionsv1beta1.DeploymentRollback{
		Name: "web", UpdatedAnnotations: map[string]string{"kubernetes.io/change-cause": "undo"},
		RollbackTo: extensionsv1beta1.RollbackConfig{Revision: 2},
	}
	if err := sub.Set(d, body); err != nil {
		t.Fatal(err)
	}
	if d.Annotations["deprecated.deployment.rollback.to"] != "2" || d.Annotations["kubernetes.io/change-cause"] != "undo" {
		t.Errorf("annotations %v", d.Annotations)
	}
	answer := sub.Get(d).(*metav1.Status)
	if answer.Status != "Success" || answer.Message != `rollback request for deployment "web" succeeded` {
		t.Errorf("answer %+v", answer)
	}
	out, err := version(t, Deployments.Def, "apps", "v1beta1").From(d)
	if err != nil || out.(*appsv1beta1.Deployment).Spec.RollbackTo.Revision != 2 {
		t.Errorf("shown as %+v, %v", out, err)
	}
}

func TestBadRollbacksAreRefused(t *testing.T) {
	t.Parallel()
	sub := version(t, Deployments.Def, "apps", "v1beta1").Subresource("rollback")
	cases := map[string]*appsv1beta1.DeploymentRollback{
		`DeploymentRollback.apps "" is invalid: name: Required value`:                                                       {},
		`DeploymentRollback.apps "web" is invalid: rollback.version: Invalid value: -1: must be greater than or equal to 0`: {Name: "web", RollbackTo: appsv1beta1.RollbackConfig{Revision: -1}},
		`name in URL does not match name in DeploymentRollback object`:                                                      {Name: "other"},
	}
	for want, body := range cases {
		d := deployment()
		err := sub.Set(d, body)
		if err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
		if apierrors.ReasonForError(err) == metav1.StatusReasonUnknown {
			t.Errorf("%v is no API error", err)
		}
		if len(d.Annotations) > 0 {
			t.Errorf("the deployment was changed: %v", d.Annotations)
		}
	}
}

func TestWorkloadsOfOldVersionsLeaveTheirPodsBehind(t *testing.T) {
	trace.Proves(t, "GC-016", "GC-017")
	for _, def := range []*resource.Def{Deployments.Def, ReplicaSets.Def, StatefulSets.Def, DaemonSets.Def} {
		if def.DefaultPropagation != metav1.DeletePropagationBackground {
			t.Errorf("%s: %s", def, def.DefaultPropagation)
		}
		for _, v := range def.Versions {
			if v.DefaultPropagation != metav1.DeletePropagationOrphan {
				t.Errorf("%s in %s/%s: %s", def, v.Group, v.Version, v.DefaultPropagation)
			}
		}
	}
}

func TestOldVersionsServeTheSubresourcesOfTheirTime(t *testing.T) {
	t.Parallel()
	if version(t, Deployments.Def, "apps", "v1beta2").Subresource("rollback") != nil {
		t.Error("apps/v1beta2 has no rollback")
	}
	for _, v := range Deployments.Versions {
		if v.Subresource("status") == nil {
			t.Errorf("%s/%s has no status", v.Group, v.Version)
		}
	}
}
