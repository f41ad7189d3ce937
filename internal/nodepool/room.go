package nodepool

import (
	"fmt"
	"maps"
	"runtime"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/cloud/scale"
)

// sample is a node of a pool as far as pods choose by that.
func sample(p *scale.Pool, name string) *corev1.Node {
	labels := map[string]string{corev1.LabelOSStable: "linux", corev1.LabelArchStable: runtime.GOARCH}
	maps.Copy(labels, p.Labels)
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
}

// unwelcome says why a pod may not run on nodes of a pool, whatever room there is, as the
// scheduler would; empty: it may.
func unwelcome(p *scale.Pool, pod *corev1.Pod) string {
	if ok, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(sample(p, p.Name)); err != nil || !ok {
		return "node(s) didn't match Pod's node affinity/selector"
	}
	i := slices.IndexFunc(p.Taints, func(t corev1.Taint) bool {
		return t.Effect != corev1.TaintEffectPreferNoSchedule && !slices.ContainsFunc(pod.Spec.Tolerations, func(o corev1.Toleration) bool {
			return o.ToleratesTaint(klog.Logger{}, &t, true)
		})
	})
	if i >= 0 {
		return fmt.Sprintf("node(s) had untolerated taint {%s: %s}", p.Taints[i].Key, p.Taints[i].Value)
	}
	return ""
}

// take takes what a pod asks for from the room of a node, or says of what there is not enough, as the
// scheduler would. What is served by devices is not asked for.
func take(room corev1.ResourceList, pod *corev1.Pod, served map[corev1.ResourceName]string) (why string) {
	asks := core.PodRequests(pod)
	maps.DeleteFunc(asks, func(name corev1.ResourceName, _ apiresource.Quantity) bool { return served[name] != "" })
	one := *apiresource.NewQuantity(1, apiresource.DecimalSI)
	if left := room[corev1.ResourcePods]; left.Cmp(one) < 0 {
		return "Too many pods"
	}
	for _, name := range slices.Sorted(maps.Keys(asks)) {
		amount := asks[name]
		if left := room[name]; amount.Sign() > 0 && left.Cmp(amount) < 0 {
			return "Insufficient " + string(name)
		}
	}
	for name, amount := range asks {
		left := room[name]
		left.Sub(amount)
		room[name] = left
	}
	left := room[corev1.ResourcePods]
	left.Sub(one)
	room[corev1.ResourcePods] = left
	return ""
}
