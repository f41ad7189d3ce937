package podautoscaler_test

import (
	"fmt"
	"os"
	"strconv"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/api/apps"
	"github.com/kemudi/kemudi/internal/api/autoscaling"
	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/sim"
)

// TestAutoscalersCostLittle measures what autoscalers cost that have nothing to do, each of
// a Deployment with two pods, ten of them in a namespace: processor time of the whole
// control plane for a virtual minute with them, less that of a minute without.
// KEMUDI_AUTOSCALERS says how many there are; it runs when that is set.
func TestAutoscalersCostLittle(t *testing.T) {
	n, err := strconv.Atoi(os.Getenv("KEMUDI_AUTOSCALERS"))
	if err != nil {
		t.Skip("KEMUDI_AUTOSCALERS is not set")
	}
	synctest.Test(t, func(t *testing.T) {
		idle, used := atRest(t, n)
		t.Logf("%d autoscalers: %.1f %% of a core, %s a look", n, (used-idle).Seconds()/60*100, (used-idle)/time.Duration(4*n))
	})
}

// spent is the processor time of the process.
func spent() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// minute is what a virtual minute costs.
func minute() time.Duration {
	before := spent()
	time.Sleep(time.Minute)
	synctest.Wait()
	return spent() - before
}

func atRest(t *testing.T, n int) (idle, used time.Duration) {
	var nodes []sim.NodeOptions
	for i := range n/40 + 1 {
		nodes = append(nodes, sim.NodeOptions{Name: fmt.Sprintf("n%d", i), CPU: "1000", Memory: "1Ti", MaxPods: 1000})
	}
	c, err := sim.Start(t.Context(), sim.Options{Nodes: nodes})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	}()
	api, autoscalers := c.API(), client.For(c.API(), autoscaling.HorizontalPodAutoscalers)
	for i := range n {
		ns := fmt.Sprintf("ns%d", i/10)
		if i%10 == 0 {
			if _, err := client.For(api, core.Namespaces).Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}); err != nil {
				t.Fatal(err)
			}
		}
		name, label := fmt.Sprintf("d%d", i), map[string]string{"app": fmt.Sprintf("d%d", i)}
		_, err := client.For(api, apps.Deployments).Create(t.Context(), &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name},
			Spec: appsv1.DeploymentSpec{Replicas: ptr.To[int32](2), Selector: &metav1.LabelSelector{MatchLabels: label}, Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: label, Annotations: map[string]string{"sim.kemudi.io/cpu": "40m"}},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "web", Resources: corev1.ResourceRequirements{
					Requests: corev1.ResourceList{corev1.ResourceCPU: quantity.MustParse("50m")},
				}}}},
			}},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(10 * time.Minute)
	idle = minute()
	for i := range n {
		_, err := autoscalers.Create(t.Context(), &autoscalingv2.HorizontalPodAutoscaler{
			ObjectMeta: metav1.ObjectMeta{Namespace: fmt.Sprintf("ns%d", i/10), Name: fmt.Sprintf("d%d", i)},
			Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
				ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: fmt.Sprintf("d%d", i)}, MaxReplicas: 10,
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(15 * time.Second / time.Duration(n)) // they do not look in step
	}
	time.Sleep(10 * time.Minute)
	used = minute()
	all, err := autoscalers.List(t.Context(), "", metav1.ListOptions{LabelSelector: labels.Everything().String()})
	if err != nil || len(all) != n || all[0].Status.CurrentReplicas != 2 || all[n-1].Status.CurrentMetrics == nil {
		t.Errorf("got %d autoscalers of %d, the first with status %+v, %v", len(all), n, all[0].Status, err)
	}
	return idle, used
}
