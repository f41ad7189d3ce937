package eventratelimit

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/lru"

	"github.com/kemudi/kemudi/internal/admission"
	"github.com/kemudi/kemudi/internal/api/core"
)

// configuration is an EventRateLimit configuration.
type configuration struct {
	APIVersion string  `json:"apiVersion"`
	Kind       string  `json:"kind"`
	Limits     []bound `json:"limits"`
}

// bound is how many events there may be with one key of a type.
type bound struct {
	Type      string `json:"type"`
	QPS       int32  `json:"qps"`
	Burst     int32  `json:"burst"`
	CacheSize int32  `json:"cacheSize"` // how many keys are remembered; 0: 4096
}

// keys are the types of limits, and what events count together by each.
var keys = map[string]func(a *admission.Attributes, e *corev1.Event) string{
	"Server":    func(*admission.Attributes, *corev1.Event) string { return "" },
	"Namespace": func(a *admission.Attributes, _ *corev1.Event) string { return a.Namespace },
	"User":      func(a *admission.Attributes, _ *corev1.Event) string { return a.User.GetName() },
	"SourceAndObject": func(_ *admission.Attributes, e *corev1.Event) string {
		o := &e.InvolvedObject
		return strings.Join([]string{e.Source.Component, e.Source.Host, o.Kind, o.Namespace, o.Name, string(o.UID), o.APIVersion}, "")
	},
}

// usualCacheSize is how many keys a limit remembers.
const usualCacheSize = 4096

// New refuses events beyond the limits of its configuration, which it must have.
func New(o *admission.Options) (admission.Plugin, error) {
	var config configuration
	var limits []*limit
	p := admission.Plugin{Name: "EventRateLimit", Validate: func(_ context.Context, a *admission.Attributes) error {
		event, ok := a.Object.(*corev1.Event)
		if !ok || a.DryRun || !a.Is(core.Events.Def, "", admission.Create, admission.Update) {
			return nil
		}
		var errs []error
		for _, l := range limits {
			if key := keys[l.Type](a, event); !l.take(key) {
				errs = append(errs, fmt.Errorf("limit reached on type %v for key %v", l.Type, key))
			}
		}
		if err := utilerrors.NewAggregate(errs); err != nil {
			return apierrors.NewTooManyRequestsError(err.Error())
		}
		return nil
	}}
	if err := o.Config.Read(p.Name, &config, "eventratelimit.admission.k8s.io/v1alpha1 Configuration"); err != nil {
		return p, err
	}
	if err := config.check(); err != nil {
		return p, admission.Misconfigured(p.Name, err)
	}
	for _, l := range config.Limits {
		size := usualCacheSize
		if l.CacheSize > 0 {
			size = int(l.CacheSize)
		}
		limits = append(limits, &limit{bound: l, buckets: lru.New(size)})
	}
	return p, nil
}

func (c *configuration) check() error {
	var errs field.ErrorList
	if len(c.Limits) == 0 {
		errs = append(errs, field.Required(field.NewPath("limits"), "there must be at least one"))
	}
	for i, l := range c.Limits {
		at := field.NewPath("limits").Index(i)
		if keys[l.Type] == nil {
			errs = append(errs, field.NotSupported(at.Child("type"), l.Type, []string{"Namespace", "Server", "SourceAndObject", "User"}))
		}
		for _, n := range []struct {
			name  string
			value int32
		}{{"qps", l.QPS}, {"burst", l.Burst}} {
			if n.value <= 0 {
				errs = append(errs, field.Invalid(at.Child(n.name), n.value, "must be positive"))
			}
		}
		if l.CacheSize < 0 {
			errs = append(errs, field.Invalid(at.Child("cacheSize"), l.CacheSize, "must not be negative"))
		}
	}
	return errs.ToAggregate()
}

// limit is a limit with a bucket for each key, the last used of them.
type limit struct {
	bound
	buckets *lru.Cache
}

// take takes one event from the key's bucket, if there is one in it.
func (l *limit) take(key string) bool {
	b, ok := l.buckets.Get(key)
	if !ok {
		b = flowcontrol.NewTokenBucketRateLimiter(float32(l.QPS), int(l.Burst))
		l.buckets.Add(key, b)
	}
	return b.(flowcontrol.RateLimiter).TryAccept()
}
