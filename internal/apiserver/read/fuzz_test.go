package read

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/apiserver/call"
	"github.com/kemudi/kemudi/internal/apiserver/served"
)

// FuzzSelectors selects a pod by any selectors: it is selected if the libraries'
// selectors both match, and refused are those that they do not read and fields
// that pods do not have.
func FuzzSelectors(f *testing.F) {
	for _, s := range [][2]string{
		{"a=b", "metadata.name=n"}, {"a in (b,c),!d,e!=f", "spec.nodeName!=x,status.phase=Running"}, {"x/y", `metadata.name=a\,b`}, {"a=", "spec.nodeName="}, {"a notin ()", "status.phase=="},
		{",", ",,"}, {"a>1,b<2", "metadata.namespace=default"}, {"!", "spec.x=1"}, {" ", "metadata.name"}, {"a=b,a!=b", "metadata.name=n,metadata.name=m"},
	} {
		f.Add(s[0], s[1], "n", "b")
	}
	c := &call.Call{Resource: &served.Resource{Def: core.Pods.Def}}
	f.Fuzz(func(t *testing.T, byLabel, byField, name, label string) {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", Labels: map[string]string{"a": label}}, Spec: corev1.PodSpec{NodeName: label}, Status: corev1.PodStatus{Phase: "Running"}}
		set := fields.Set{"metadata.name": name, "metadata.namespace": "default"}
		for field, get := range core.Pods.Def.Fields {
			set[field] = get(pod)
		}
		l, err := labels.Parse(byLabel)
		var s fields.Selector
		if err == nil {
			s, err = fields.ParseSelector(byField)
		}
		if err == nil {
			for _, r := range s.Requirements() {
				if _, ok := set[r.Field]; !ok {
					err = unknownField(core.Pods.Def, r.Field)
				}
			}
		}
		sel, got := newSelection(t.Context(), c, byLabel, byField)
		if (got == nil) != (err == nil) {
			t.Fatalf("%q, %q: got %v, want %v", byLabel, byField, got, err)
		}
		if err != nil {
			return
		}
		if got, want := sel.Matches(pod), l.Matches(labels.Set(pod.Labels)) && s.Matches(set); got != want {
			t.Errorf("%q, %q: selected: got %t, want %t", byLabel, byField, got, want)
		}
		if sel.name != "" && sel.Matches(pod) && sel.name != name {
			t.Errorf("%q: is looked for as %q, but selects %q", byField, sel.name, name)
		}
		if sel.index != "" && sel.Matches(pod) && sel.value != set[sel.index] {
			t.Errorf("%q: is looked for by %s=%s, but selects %s", byField, sel.index, sel.value, set[sel.index])
		}
	})
}
