package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/kemudi/kemudi/internal/task"
)

// scalePatience is how long a cluster may take for what is asked of it.
const scalePatience = 10 * time.Minute

// A scaleStep is what is asked of a cluster of simulated nodes that has just been
// started, on etcd.
type scaleStep struct {
	name  string
	nodes int
	do    func(*scaler, context.Context) error
}

var scaleSteps = []scaleStep{
	{"pods", 400, (*scaler).manyPods},
	{"rollout", 100, (*scaler).rollOut},
	{"job", 20, (*scaler).complete},
	{"cron", 1, (*scaler).startCronJobs},
	{"namespace", 1, (*scaler).emptyNamespace},
	{"dependents", 1, (*scaler).dropOwner},
	{"endpoints", 200, (*scaler).changeEndpoints},
	{"autoscalers", 50, (*scaler).autoscale},
	{"nodes", 5000, (*scaler).heartbeats},
}

// scale measures whole clusters of simulated nodes, one after another.
func (b *bench) scale(ctx context.Context) error {
	for _, step := range scaleSteps {
		if b.steps != "" && !listed(b.steps, step.name) {
			continue
		}
		if err := b.simulated(ctx, step); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
	}
	return nil
}

// simulated runs a step in a cluster of its own.
func (b *bench) simulated(ctx context.Context, step scaleStep) (err error) {
	b.say("%s: a cluster of %d simulated nodes", step.name, step.nodes)
	p := simulated(b.dir)
	pool := fmt.Sprintf("pools: [{name: node, count: %d, cpu: '64', memory: 256Gi, startAfter: 1ms}]", step.nodes)
	if err := os.WriteFile(pools(b.dir), []byte(pool), 0o644); err != nil {
		return fmt.Errorf("write the profile of nodes: %w", err)
	}
	defer func() { err = errors.Join(err, p.remove(ctx, b.bin)) }()
	s, err := p.start(b.bin)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	a, err := awaitAPI(ctx, s)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, scalePatience, fmt.Errorf("not within %s", scalePatience))
	defer cancel()
	sc := &scaler{&loader{b, s, a}}
	if _, err := a.clients.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: scaleSpace}}, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("make a namespace: %w", err)
	}
	err = sc.until(ctx, a.clients.CoreV1().Nodes().Watch, step.nodes, func(_ watch.Event, obj metav1.Object) bool {
		for _, c := range obj.(*corev1.Node).Status.Conditions {
			if c.Type == corev1.NodeReady {
				return c.Status == corev1.ConditionTrue
			}
		}
		return false
	})
	if err != nil {
		return err
	}
	// On a machine that has other work, too, processor time says more than what passed on the clock.
	before, err := usageOf(s.cmd.Process.Pid)
	if err != nil {
		return err
	}
	if err := step.do(sc, ctx); err != nil {
		return err
	}
	after, err := usageOf(s.cmd.Process.Pid)
	b.say("%s: %.1f s of the server's processor time", step.name, (after.cpu - before.cpu).Seconds())
	return err
}

// scaleSpace is the namespace that everything is in.
const scaleSpace = "scale"

// scaler asks much of a cluster.
type scaler struct{ *loader }

type watchFunc = func(context.Context, metav1.ListOptions) (watch.Interface, error)

// until watches until n different objects pass a test.
func (s *scaler) until(ctx context.Context, open watchFunc, n int, test func(watch.Event, metav1.Object) bool) error {
	w, err := open(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("watch: %w", err)
	}
	defer w.Stop()
	seen := map[string]bool{}
	for len(seen) < n {
		select {
		case e, ok := <-w.ResultChan():
			if !ok {
				return fmt.Errorf("the watch ended: %d of %d", len(seen), n)
			}
			obj, ok := e.Object.(metav1.Object)
			if !ok {
				return fmt.Errorf("the watch failed after %d of %d: %v", len(seen), n, e.Object)
			}
			if test(e, obj) {
				seen[obj.GetName()] = true
			}
		case <-ctx.Done():
			return fmt.Errorf("%d of %d: %w", len(seen), n, context.Cause(ctx))
		}
	}
	return nil
}

// number stands for an object's number in what is sent.
const number = "NUMBER"

// fill creates n objects of what is sent to a path.
func (s *scaler) fill(ctx context.Context, n int, path string, obj any) error {
	data := toJSON(obj)
	_, _, err := s.all(ctx, n, call{http.MethodPost, mediaJSON, func(int) string { return path }, func(i int) []byte {
		return bytes.ReplaceAll(data, []byte(number), []byte(strconv.Itoa(i)))
	}})
	return err
}

// share is the server's processor time while f runs, in percent of one core.
func (s *scaler) share(f func() error) (float64, error) {
	before, err := usageOf(s.s.cmd.Process.Pid)
	if err != nil {
		return 0, err
	}
	began := time.Now()
	if err := f(); err != nil {
		return 0, err
	}
	took := time.Since(began)
	after, err := usageOf(s.s.cmd.Process.Pid)
	return 100 * float64(after.cpu-before.cpu) / float64(took), err
}

// atRest is the server's processor time while nothing is asked of it.
func (s *scaler) atRest(ctx context.Context) (float64, error) {
	if err := task.Sleep(ctx, idleRest); err != nil {
		return 0, err
	}
	return s.share(func() error { return task.Sleep(ctx, idleWindow) })
}

func scaleTemplate(app string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": app}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "web:1", Ports: []corev1.ContainerPort{{ContainerPort: 80}}}}},
	}
}

func scaleDeployment(name string, replicas int32) *appsv1.Deployment {
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}, Template: scaleTemplate(name),
		},
	}
}

const deploymentsPath = "/apis/apps/v1/namespaces/" + scaleSpace + "/deployments"

// deploy creates n Deployments and waits until all their pods are ready.
func (s *scaler) deploy(ctx context.Context, n int, replicas int32) error {
	if err := s.fill(ctx, n, deploymentsPath, scaleDeployment("web-"+number, replicas)); err != nil {
		return err
	}
	return s.until(ctx, s.a.clients.AppsV1().Deployments(scaleSpace).Watch, n, func(_ watch.Event, obj metav1.Object) bool {
		return obj.(*appsv1.Deployment).Status.ReadyReplicas == replicas
	})
}

// manyPods: 30,000 pods of 300 Deployments.
func (s *scaler) manyPods(ctx context.Context) error {
	began := time.Now()
	if err := s.deploy(ctx, 300, 100); err != nil {
		return err
	}
	took := time.Since(began)
	peak, err := field(procFile(s.s.cmd.Process.Pid, "status"), "VmHWM:")
	if err := s.b.set(scalePods, 30_000/took.Seconds(), err); err != nil {
		return err
	}
	return s.b.set(scalePodsMemory, mib(peak<<10), nil)
}

// rollOut: another template for a Deployment of 5,000 pods.
func (s *scaler) rollOut(ctx context.Context) error {
	const replicas = 5000
	if err := s.deploy(ctx, 1, replicas); err != nil {
		return err
	}
	c := s.a.clients.AppsV1().Deployments(scaleSpace)
	d, err := c.Get(ctx, "web-0", metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read the Deployment: %w", err)
	}
	d.Spec.Template.Spec.Containers[0].Image = "web:2"
	began := time.Now()
	if d, err = c.Update(ctx, d, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("change the Deployment: %w", err)
	}
	err = s.until(ctx, c.Watch, 1, func(_ watch.Event, obj metav1.Object) bool {
		st := obj.(*appsv1.Deployment).Status
		return st.ObservedGeneration >= d.Generation && st.UpdatedReplicas == replicas && st.AvailableReplicas == replicas && st.Replicas == replicas
	})
	return s.b.set(scaleRollout, time.Since(began).Seconds(), err)
}

// complete: a Job of 10,000 completions, 500 at a time.
func (s *scaler) complete(ctx context.Context) error {
	const completions = 10_000
	template := scaleTemplate("work")
	template.Annotations = map[string]string{"sim.kemudi.io/exit-after": "1ms"}
	template.Spec.RestartPolicy = corev1.RestartPolicyNever
	job := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: "work"},
		Spec:       batchv1.JobSpec{Parallelism: new(int32(500)), Completions: new(int32(completions)), Template: template},
	}
	began := time.Now()
	if _, err := s.a.clients.BatchV1().Jobs(scaleSpace).Create(ctx, job, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("make the Job: %w", err)
	}
	err := s.until(ctx, s.a.clients.BatchV1().Jobs(scaleSpace).Watch, 1, func(_ watch.Event, obj metav1.Object) bool {
		for _, c := range obj.(*batchv1.Job).Status.Conditions {
			if c.Type == batchv1.JobComplete {
				return c.Status == corev1.ConditionTrue
			}
		}
		return false
	})
	return s.b.set(scaleJob, completions/time.Since(began).Seconds(), err)
}

// startCronJobs: 5,000 CronJobs that are due in the same minute. Their Jobs are
// suspended: the pods would be another measure.
func (s *scaler) startCronJobs(ctx context.Context) error {
	const crons = 5000
	due := time.Now().Truncate(time.Minute).Add(2 * time.Minute)
	template := scaleTemplate("tick")
	template.Spec.RestartPolicy = corev1.RestartPolicyNever
	err := s.fill(ctx, crons, "/apis/batch/v1/namespaces/"+scaleSpace+"/cronjobs", &batchv1.CronJob{
		ObjectMeta: metav1.ObjectMeta{Name: "tick-" + number},
		Spec: batchv1.CronJobSpec{
			Schedule: due.UTC().Format("4 15 * * *"), TimeZone: new("Etc/UTC"),
			JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Suspend: new(true), Template: template}},
		},
	})
	if err != nil {
		return err
	}
	if time.Now().After(due) {
		return fmt.Errorf("to create %d CronJobs took longer than the minute before they are due", crons)
	}
	err = s.until(ctx, s.a.clients.BatchV1().Jobs(scaleSpace).Watch, crons, func(watch.Event, metav1.Object) bool { return true })
	return s.b.set(scaleCron, time.Since(due).Seconds(), err)
}

// emptyNamespace: a namespace of 10,000 objects goes.
func (s *scaler) emptyNamespace(ctx context.Context) error {
	err := s.fill(ctx, 10_000, "/api/v1/namespaces/"+scaleSpace+"/configmaps", &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "settings-" + number}, Data: map[string]string{"key": "value"},
	})
	if err != nil {
		return err
	}
	began := time.Now()
	if err := s.a.clients.CoreV1().Namespaces().Delete(ctx, scaleSpace, metav1.DeleteOptions{}); err != nil {
		return fmt.Errorf("delete the namespace: %w", err)
	}
	err = s.until(ctx, s.a.clients.CoreV1().Namespaces().Watch, 1, func(e watch.Event, obj metav1.Object) bool {
		return e.Type == watch.Deleted && obj.GetName() == scaleSpace
	})
	return s.b.set(scaleNamespace, time.Since(began).Seconds(), err)
}

// dropOwner: an object that 20,000 others belong to goes.
func (s *scaler) dropOwner(ctx context.Context) error {
	const dependents = 20_000
	maps := s.a.clients.CoreV1().ConfigMaps(scaleSpace)
	owner, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owner"}}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("make the owner: %w", err)
	}
	err = s.fill(ctx, dependents, "/api/v1/namespaces/"+scaleSpace+"/configmaps", &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Name:            "dependent-" + number,
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID, BlockOwnerDeletion: new(true)}},
	}})
	if err != nil {
		return err
	}
	began := time.Now()
	if err := maps.Delete(ctx, owner.Name, metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationForeground)}); err != nil {
		return fmt.Errorf("delete the owner: %w", err)
	}
	err = s.until(ctx, maps.Watch, 1, func(e watch.Event, obj metav1.Object) bool {
		return e.Type == watch.Deleted && obj.GetName() == owner.Name
	})
	return s.b.set(scaleDependents, time.Since(began).Seconds(), err)
}

// changeEndpoints: 100 of 10,000 pods a second become ready or unready; what that
// costs with a Service in front of them, less what it costs without.
func (s *scaler) changeEndpoints(ctx context.Context) error {
	const changes = 3000
	if err := s.deploy(ctx, 1, 10_000); err != nil {
		return err
	}
	list, err := s.a.clients.CoreV1().Pods(scaleSpace).List(ctx, metav1.ListOptions{Limit: changes / 2})
	if err != nil {
		return fmt.Errorf("list pods: %w", err)
	}
	if err := task.Sleep(ctx, idleRest); err != nil {
		return err
	}
	change := func() error {
		return s.steadily(ctx, changes, 100, call{
			http.MethodPatch, "application/strategic-merge-patch+json",
			func(i int) string {
				return "/api/v1/namespaces/" + scaleSpace + "/pods/" + list.Items[i%len(list.Items)].Name + "/status"
			},
			func(i int) []byte {
				ready := corev1.ConditionFalse
				if i >= len(list.Items) {
					ready = corev1.ConditionTrue
				}
				return fmt.Appendf(nil, `{"status":{"conditions":[{"type":"Ready","status":%q}]}}`, ready)
			},
		})
	}
	without, err := s.share(change)
	if err != nil {
		return err
	}
	_, err = s.a.clients.CoreV1().Services(scaleSpace).Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec:       corev1.ServiceSpec{Selector: map[string]string{"app": "web-0"}, Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(80)}}},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("make the Service: %w", err)
	}
	if err := task.Sleep(ctx, idleRest); err != nil {
		return err
	}
	with, err := s.share(change)
	if err != nil {
		return err
	}
	s.b.say("100 changes of pods a second: %.1f %% of a core without a Service, %.1f %% with it", without, with)
	return s.b.set(scaleEndpoints, with-without, nil)
}

// steadily sends n requests, so many a second.
func (s *scaler) steadily(ctx context.Context, n, rate int, c call) error {
	const workers = 4
	began := time.Now()
	g := task.NewGroup(ctx)
	for w := range workers {
		g.Go("client", func(ctx context.Context) error {
			t := s.a.transport()
			defer t.CloseIdleConnections()
			for i := w; i < n; i += workers {
				if err := task.Sleep(ctx, time.Until(began.Add(time.Duration(i)*time.Second/time.Duration(rate)))); err != nil {
					return err
				}
				if _, err := s.send(ctx, t, c, i); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return g.Wait()
}

// autoscale: 1,000 autoscalers that have nothing to change, less the same cluster
// without them.
func (s *scaler) autoscale(ctx context.Context) error {
	const scalers = 1000
	d := scaleDeployment("web-"+number, 1)
	d.Spec.Template.Annotations = map[string]string{"sim.kemudi.io/cpu": "50m"}
	d.Spec.Template.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m")}
	if err := s.fill(ctx, scalers, deploymentsPath, d); err != nil {
		return err
	}
	err := s.until(ctx, s.a.clients.AppsV1().Deployments(scaleSpace).Watch, scalers, func(_ watch.Event, obj metav1.Object) bool {
		return obj.(*appsv1.Deployment).Status.ReadyReplicas == 1
	})
	if err != nil {
		return err
	}
	without, err := s.atRest(ctx)
	if err != nil {
		return err
	}
	err = s.fill(ctx, scalers, "/apis/autoscaling/v2/namespaces/"+scaleSpace+"/horizontalpodautoscalers", &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Name: "web-" + number},
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "web-" + number},
			MaxReplicas:    3,
			Metrics: []autoscalingv2.MetricSpec{{Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricSource{
				Name: corev1.ResourceCPU, Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: new(int32(50))},
			}}},
		},
	})
	if err != nil {
		return err
	}
	// What has no metrics has nothing to compute either.
	err = s.until(ctx, s.a.clients.AutoscalingV2().HorizontalPodAutoscalers(scaleSpace).Watch, scalers, func(_ watch.Event, obj metav1.Object) bool {
		return len(obj.(*autoscalingv2.HorizontalPodAutoscaler).Status.CurrentMetrics) > 0
	})
	if err != nil {
		return err
	}
	with, err := s.atRest(ctx)
	if err != nil {
		return err
	}
	s.b.say("1,000 Deployments at rest: %.1f %% of a core without autoscalers, %.1f %% with them", without, with)
	return s.b.set(scaleAutoscalers, with-without, nil)
}

// heartbeats: 5,000 nodes with 50,000 pods, at rest.
func (s *scaler) heartbeats(ctx context.Context) error {
	if err := s.deploy(ctx, 500, 100); err != nil {
		return err
	}
	share, err := s.atRest(ctx)
	if err != nil {
		return err
	}
	u, err := usageOf(s.s.cmd.Process.Pid)
	if err := s.b.set(scaleNodes, share, err); err != nil {
		return err
	}
	return s.b.set(scaleNodesMemory, mib(u.rss), nil)
}
