package podautoscaler

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/kemudi/kemudi/internal/api/autoscaling"
	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/controller"
	"github.com/kemudi/kemudi/internal/resource"
)

// Options configure the controller. The zero value is upstream's.
type Options struct {
	// SyncPeriod is how often an autoscaler is looked at (--horizontal-pod-autoscaler-sync-period).
	SyncPeriod time.Duration
	// Downscale is for how long the highest recommendation is followed before pods are
	// taken away (--horizontal-pod-autoscaler-downscale-stabilization; negative: not at all).
	Downscale time.Duration
	// Tolerance is how far a metric may be off its target, as a share of it
	// (--horizontal-pod-autoscaler-tolerance).
	Tolerance float64
	// CPUInitialization is for how long after its start the processor time of a pod is taken
	// to be that of its start, unless it was ready (--horizontal-pod-autoscaler-cpu-initialization-period;
	// negative: never).
	CPUInitialization time.Duration
	// InitialReadinessDelay is for how long after its start a pod that becomes unready is
	// taken never to have been ready (--horizontal-pod-autoscaler-initial-readiness-delay;
	// negative: never).
	InitialReadinessDelay time.Duration
}

// Defaults are the options of a controller that is given none.
func Defaults() Options { return Options{}.withDefaults() }

func (o Options) withDefaults() Options {
	o.SyncPeriod, o.Downscale = cmp.Or(o.SyncPeriod, 15*time.Second), cmp.Or(o.Downscale, 5*time.Minute)
	o.CPUInitialization, o.InitialReadinessDelay = cmp.Or(o.CPUInitialization, 5*time.Minute), cmp.Or(o.InitialReadinessDelay, 30*time.Second)
	o.Tolerance = cmp.Or(o.Tolerance, 0.1)
	return o
}

// Check says what is wrong with the options.
func (o Options) Check() error {
	switch {
	case o.SyncPeriod < 0:
		return errors.New("--horizontal-pod-autoscaler-sync-period must not be negative")
	case o.Tolerance < 0:
		return errors.New("--horizontal-pod-autoscaler-tolerance must not be negative")
	}
	return nil
}

// New returns the controller, of targets of the kinds that have a scale.
func New(kinds controller.Kinds, o Options) *controller.Controller {
	o = o.withDefaults()
	o.Downscale, o.CPUInitialization, o.InitialReadinessDelay = max(o.Downscale, 0), max(o.CPUInitialization, 0), max(o.InitialReadinessDelay, 0)
	return controller.New(controller.Spec[*autoscalingv2.HorizontalPodAutoscaler]{
		Name:   "horizontal-pod-autoscaler",
		For:    autoscaling.HorizontalPodAutoscalers,
		Reads:  []*resource.Def{core.Pods.Def},
		Writes: []controller.Permission{controller.UpdateStatus(autoscaling.HorizontalPodAutoscalers.Def)},
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{"*"}, Resources: []string{"*/scale"}, Verbs: []string{"get", "update"}},
			{APIGroups: []string{"metrics.k8s.io"}, Resources: []string{"pods"}, Verbs: []string{"list"}},
			{APIGroups: []string{"custom.metrics.k8s.io", "external.metrics.k8s.io"}, Resources: []string{"*"}, Verbs: []string{"get", "list"}},
		},
		Setup: func(k *controller.Kit) controller.Reconciler[*autoscalingv2.HorizontalPodAutoscaler] {
			t := &targets{kinds: kinds, api: k.Transport()}
			r := &reconciler{
				o: o, kit: k, autoscalers: controller.For(k, autoscaling.HorizontalPodAutoscalers), pods: controller.For(k, core.Pods),
				targets: t, metrics: &source{api: k.Transport(), targets: t}, overlap: newOverlap(),
				counted: controller.OwnMetrics(k, newCounters),
			}
			r.mu.states = map[string]*state{}
			return r
		},
	})
}

type reconciler struct {
	o           Options
	kit         *controller.Kit
	autoscalers controller.Client[*autoscalingv2.HorizontalPodAutoscaler]
	pods        controller.Client[*corev1.Pod]
	targets     *targets
	metrics     *source
	overlap     *overlap
	counted     *counters

	mu struct {
		sync.Mutex
		states map[string]*state // by key; each belongs to who reconciles the key
	}
}

// state is what is remembered of an autoscaler.
type state struct {
	next       time.Time // when it is looked at again (H1)
	generation int64     // of the spec that was looked at last
	history    history
}

// state is that of an autoscaler.
func (r *reconciler) state(key string) *state {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.mu.states[key]
	if s == nil {
		s = &state{}
		r.mu.states[key] = s
		r.counted.autoscalers.Set(float64(len(r.mu.states)))
	}
	return s
}

// Gone forgets an autoscaler.
func (r *reconciler) Gone(_ context.Context, key string) error {
	r.overlap.drop(key)
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.mu.states, key)
	r.counted.autoscalers.Set(float64(len(r.mu.states)))
	return nil
}

// Reconcile looks at an autoscaler when its time has come, or its spec is another. What fails is
// in its conditions and events, and tried again in a period.
func (r *reconciler) Reconcile(ctx context.Context, a *autoscalingv2.HorizontalPodAutoscaler) (controller.Next, error) {
	key := cache.Key(a.Namespace, a.Name)
	s := r.state(key)
	if left := time.Until(s.next); left > 0 && s.generation == a.Generation {
		return controller.After(left), nil
	}
	s.generation = a.Generation
	l := &look{reconciler: r, key: key, state: s, now: time.Now(), a: a.DeepCopy()}
	err := l.run(ctx)
	if err != nil {
		r.kit.Logger.Debug("look at autoscaler", "key", key, "err", err)
	}
	r.counted.looked(l.now, l.had, l.has, err)
	s.next = time.Now().Add(r.o.SyncPeriod)
	return controller.After(r.o.SyncPeriod), l.store(ctx, a)
}
