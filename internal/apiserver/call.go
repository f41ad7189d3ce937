package apiserver

import (
	"context"
	"slices"
	"strings"
	"unicode"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/kemudi/kemudi/internal/apiserver/refusal"
	"github.com/kemudi/kemudi/internal/apiserver/served"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/resource"
)

// call is one request for a resource, from HTTP or from the same process.
type call struct {
	verb            string
	res             *served.Resource
	sub             *resource.SubDef // nil: the object itself
	namespace, name string

	user  user.Info
	agent string // the client's user agent

	dryRun     bool
	manager    string // field manager, as given
	validation string // of fields: Ignore, Warn or Strict; empty: Warn
	force      *bool  // apply: take over conflicting fields

	warnings []string

	// What else the call says, by its verb.
	rev    string                // get: resourceVersion
	list   *metav1.ListOptions   // list, watch, deletecollection
	delete *metav1.DeleteOptions // delete, deletecollection
	patch  document
	body   runtime.Object // create, update: at the storage version; or what the subresource or the action is sent
}

// warn tells the client something, once.
func (c *call) warn(text string) {
	if !slices.Contains(c.warnings, text) {
		c.warnings = append(c.warnings, text)
	}
}

// key is the object's key in the store, cacheKey that in the cache.
func (c *call) key() string { return c.res.Def.Key(c.namespace, c.name) }

func (c *call) cacheKey() string {
	if !c.res.Def.Namespaced {
		return c.name
	}
	return cache.Key(c.namespace, c.name)
}

// has reports whether what the call is about, the subresource or the resource
// itself, has the verb.
func (c *call) has(verb string) bool {
	verbs := c.res.Def.Verbs
	if c.sub != nil {
		verbs = c.sub.Verbs
	}
	return verbs.Has(resource.Verb(verb))
}

// subName is the name of the subresource; empty for the object itself.
func (c *call) subName() string {
	if c.sub == nil {
		return ""
	}
	return c.sub.Name
}

// fieldManager is who owns the fields that the call sets: the name given, or
// the part of the user agent before the first slash.
func (c *call) fieldManager() string {
	if c.manager != "" {
		return c.manager
	}
	name, _, _ := strings.Cut(c.agent, "/")
	var b strings.Builder
	for _, r := range name {
		if unicode.IsPrint(r) && b.Len()+len(string(r)) <= 128 {
			b.WriteRune(r)
		}
	}
	if b.Len() == 0 {
		return "unknown"
	}
	return b.String()
}

// attributes are the call as the authorizer sees it.
func (c *call) attributes(verb string) *authorizer.AttributesRecord {
	namespace := c.namespace
	if c.res.Def.IsNamespace {
		namespace = c.name
	}
	return &authorizer.AttributesRecord{
		User: c.user, Verb: verb, Namespace: namespace,
		APIGroup: c.res.GVK.Group, APIVersion: c.res.GVK.Version, Resource: c.res.Def.Plural,
		Subresource: c.subName(), Name: c.name, ResourceRequest: true,
	}
}

// authorize refuses what the user may not do.
func (s *Server) authorize(ctx context.Context, a authorizer.Attributes) error {
	if s.o.Authorizer == nil {
		return nil
	}
	decision, reason, err := s.o.Authorizer.Authorize(ctx, a)
	if decision == authorizer.DecisionAllow {
		return nil
	}
	if err != nil {
		s.log.DebugContext(ctx, "authorization error", "err", err, "user", a.GetUser().GetName())
	}
	return refusal.Forbidden(a, reason)
}

// Values of the fieldValidation parameter.
const (
	ignoreFields = metav1.FieldValidationIgnore
	strictFields = metav1.FieldValidationStrict
)
