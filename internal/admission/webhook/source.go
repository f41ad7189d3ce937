package webhook

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/google/cel-go/cel"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/kemudi/kemudi/internal/admission"
	"github.com/kemudi/kemudi/internal/admission/match"
	"github.com/kemudi/kemudi/internal/admission/static"
	"github.com/kemudi/kemudi/internal/api/admissionregistration"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/cel/request"
	"github.com/kemudi/kemudi/internal/hook"
	"github.com/kemudi/kemudi/internal/resource"
)

// webhook is a webhook of a configuration, read once.
type webhook struct {
	*admissionregistrationv1.MutatingWebhook
	configuration string
	key           string // tells it from all others
	criteria      *match.Criteria
	broken        error // the selectors cannot be read: nobody should be able to store that
	at            hook.Config
	conditions    func() []condition
}

// condition is a match condition; err says why it cannot be evaluated.
type condition struct {
	expression *request.Expression
	err        error
}

// source is the webhooks of one kind of configurations, in the order in which they are asked:
// that of the configurations' names.
type source struct {
	def   *resource.Def
	cache *cache.Cache // nil: there are none
	files *static.Set  // nil: there are none
	shown *hook.Identities
	read  func(obj resource.Object) []admissionregistrationv1.MutatingWebhook
	mu    struct {
		sync.Mutex
		files *static.Content // which were read
		fixed []*webhook      // of files
		items []*cache.Item   // which were read
		each  [][]*webhook    // of each of items
		all   []*webhook      // those of files before the others; never changed in place
	}
}

func mutatingSource(o *admission.Options) *source {
	def := admissionregistration.MutatingWebhookConfigurations.Def
	return &source{def: def, cache: o.Caches(def), read: func(obj resource.Object) []admissionregistrationv1.MutatingWebhook {
		return admissionregistration.MutatingWebhooks(obj.(*admissionregistrationv1.MutatingWebhookConfiguration))
	}}
}

func validatingSource(o *admission.Options) *source {
	def := admissionregistration.ValidatingWebhookConfigurations.Def
	return &source{def: def, cache: o.Caches(def), read: func(obj resource.Object) []admissionregistrationv1.MutatingWebhook {
		return admissionregistration.ValidatingWebhooks(obj.(*admissionregistrationv1.ValidatingWebhookConfiguration))
	}}
}

// fixed are the webhooks of files, which alone are asked about webhooks and policies.
func (s *source) fixed() []*webhook {
	if s.files == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.takeFilesLocked()
	return s.mu.fixed
}

// takeFilesLocked reads what files say if they have changed.
func (s *source) takeFilesLocked() {
	now := s.files.Now()
	if now == s.mu.files {
		return
	}
	s.mu.files, s.mu.fixed = now, nil
	for _, obj := range now.Of(s.def) {
		s.mu.fixed = append(s.mu.fixed, s.compile(obj)...)
	}
	s.mu.all = slices.Concat(append([][]*webhook{s.mu.fixed}, s.mu.each...)...)
}

// present are the webhooks that there are now (A1). Nobody writes before it is known which they
// are.
func (s *source) present(ctx context.Context) ([]*webhook, error) {
	if s.cache == nil {
		return nil, nil
	}
	select {
	case <-s.cache.Synced():
	default:
		select {
		case <-s.cache.Synced():
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for the webhooks that there are: %w", context.Cause(ctx))
		}
	}
	if s.cache.Len() == 0 {
		return s.fixed(), nil
	}
	items := s.cache.List("", nil)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.takeFilesLocked()
	if !slices.Equal(items, s.mu.items) {
		s.readLocked(items)
	}
	return s.mu.all, nil
}

// readLocked reads those configurations that have changed.
func (s *source) readLocked(items []*cache.Item) {
	each := make([][]*webhook, len(items))
	for i, it := range items {
		if j := slices.Index(s.mu.items, it); j >= 0 {
			each[i] = s.mu.each[j]
		} else {
			each[i] = s.compile(it.Object)
		}
	}
	s.mu.items, s.mu.each, s.mu.all = items, each, slices.Concat(append([][]*webhook{s.mu.fixed}, each...)...)
}

// compile reads the webhooks of a configuration.
func (s *source) compile(of resource.Object) []*webhook {
	configuration, list := of.GetName(), s.read(of)
	all := make([]*webhook, len(list))
	for i := range list {
		w := &webhook{MutatingWebhook: &list[i], configuration: configuration, key: fmt.Sprintf("%s/%s/%d", configuration, list[i].Name, i)}
		w.criteria, w.broken = match.Compile(match.Spec{
			Namespace: w.NamespaceSelector, Object: w.ObjectSelector, Rules: match.Named(w.Rules), Policy: w.MatchPolicy,
		})
		w.at.CABundle = w.ClientConfig.CABundle
		if u := w.ClientConfig.URL; u != nil {
			w.at.URL = *u
		}
		if svc := w.ClientConfig.Service; svc != nil {
			w.at.Service = &hook.Service{Namespace: svc.Namespace, Name: svc.Name}
			if svc.Path != nil {
				w.at.Service.Path = *svc.Path
			}
			if svc.Port != nil {
				w.at.Service.Port = *svc.Port
			}
		}
		if as, err := s.shown.Of(w.at); err == nil { // or it is not called: what is wrong is told then
			w.at.As = as
		}
		w.conditions = sync.OnceValue(w.compileConditions)
		all[i] = w
	}
	return all
}

// compileConditions compiles the match conditions when the first write comes to them.
func (w *webhook) compileConditions() []condition {
	all := make([]condition, len(w.MatchConditions))
	for i, c := range w.MatchConditions {
		e, err := request.Compile(request.Environment(request.Uses{Authorizer: true}), request.Stored, c.Expression, cel.BoolType)
		if err != nil {
			all[i].err = fmt.Errorf("compilation error: %w", err)
			continue
		}
		all[i].expression = e
	}
	return all
}

// ignores reports that writes go on when the webhook cannot be asked.
func (w *webhook) ignores() bool {
	return w.FailurePolicy != nil && *w.FailurePolicy == admissionregistrationv1.Ignore
}
