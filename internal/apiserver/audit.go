package apiserver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"path"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/conversion/queryparams"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/kemudi/kemudi/internal/apiserver/answer"
	"github.com/kemudi/kemudi/internal/apiserver/call"
	"github.com/kemudi/kemudi/internal/apiserver/legacy"
	"github.com/kemudi/kemudi/internal/apiserver/refusal"
	"github.com/kemudi/kemudi/internal/apiserver/request"
	"github.com/kemudi/kemudi/internal/apiserver/served"
	"github.com/kemudi/kemudi/internal/audit"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/wire"
)

// withAudit has told of the request what the audit policy asks for.
func (s *Server) withAudit(next http.Handler) http.Handler {
	if s.o.Audit == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		st := stateOf(r)
		told := st.audit
		if !told.Decide(attributesOf(r)) {
			st.audit = nil
			next.ServeHTTP(w, r)
			return
		}
		if !told.Received(originOf(r)) {
			st.audit = nil
			s.writeError(w, r, errNotAudited)
			return
		}
		defer func() {
			if p := recover(); p != nil {
				told.Panicked(p)
				panic(p)
			}
			st.after(func() { told.Complete(st.code) })
		}()
		next.ServeHTTP(w, r)
	})
}

// errNotAudited refuses a request that no backend of the audit has taken note of.
var errNotAudited = apierrors.NewInternalError(errors.New("failed to store audit event"))

// originOf is where an HTTP request comes from.
func originOf(r *http.Request) audit.Origin {
	return audit.Origin{URI: r.URL.RequestURI(), Agent: r.UserAgent(), Sources: utilnet.SourceIPs(r), Long: stateOf(r).info.LongRunning()}
}

// refuse answers a request of which it is not known whose it is, and has that told.
func (s *Server) refuse(w http.ResponseWriter, r *http.Request, err error) {
	st := stateOf(r)
	if st.audit.Decide(attributesOf(r)) {
		st.audit.Refused(originOf(r))
	} else {
		st.audit = nil
	}
	s.writeError(w, r, err)
}

// audit has told that there is a call from within the process, if it is to be; its
// end is for the caller to tell. The context is for what the call does.
func (l *local) audit(ctx context.Context, c *call.Call, r *client.Request, a authorizer.Attributes) (context.Context, error) {
	if l.s.o.Audit == nil {
		return ctx, nil
	}
	told := l.s.o.Audit.New(request.NewAuditID())
	switch {
	case !told.Decide(a):
	case !told.Received(audit.Origin{URI: localURI(c, r), Agent: l.agent}):
		return ctx, errNotAudited
	default:
		c.Audit = told
	}
	return audit.NewContext(ctx, c.Audit), nil
}

// localURI is the path and query by which a call from within would have come.
func localURI(c *call.Call, r *client.Request) string {
	gvk, root := c.Resource.GVK, "/apis"
	if gvk.Group == "" {
		root = "/api"
	}
	parts := []string{root, gvk.Group, gvk.Version}
	if c.Namespace != "" {
		parts = append(parts, "namespaces", c.Namespace)
	}
	parts = append(parts, c.Resource.Def.Plural)
	query := url.Values{}
	switch c.Verb {
	case "list", "deletecollection":
		query, _ = queryparams.Convert(&r.List) // it is made of strings and numbers
	default:
		parts = append(parts, c.Name, r.Sub)
	}
	if r.FieldManager != "" {
		query.Set("fieldManager", r.FieldManager)
	}
	if r.Force != nil && *r.Force {
		query.Set("force", "true")
	}
	if r.DryRun {
		query.Set("dryRun", metav1.DryRunAll)
	}
	uri := url.URL{Path: path.Join(parts...), RawQuery: query.Encode()}
	return uri.RequestURI()
}

// tellSent has told what a call sends: an object, a patch, or how to delete.
func (s *Server) tellSent(c *call.Call) {
	if obj, ok := c.Body.(metav1.Object); ok {
		c.Audit.About(obj)
	}
	if !c.Audit.TellsRequest() {
		return
	}
	var doc []byte
	var err error
	switch {
	case c.Body != nil:
		doc, err = bodyJSON(c)
	case c.Patch.Body != nil:
		if doc, err = patchJSON(&c.Patch); err == nil {
			c.Audit.SentPatch(doc)
		}
		return
	case c.Delete != nil && !isPlainDelete(c.Delete):
		doc, err = served.AppendAny(nil, request.MediaJSON, c.Resource.GVK.GroupVersion().WithKind("DeleteOptions"), c.Delete)
	default:
		return
	}
	if err != nil {
		s.log.Debug("what was sent cannot be audited", "err", err)
		return
	}
	c.Audit.Sent(doc)
}

// bodyJSON is the object that a call sends, in the version of the call.
func bodyJSON(c *call.Call) ([]byte, error) {
	obj, generic := c.Body.(resource.Object)
	if gvk, ok := bodyKind(c); ok || !generic {
		return served.AppendAny(nil, request.MediaJSON, gvk, c.Body)
	}
	doc, err := c.Resource.Forms.JSON.Append(nil, obj)
	if err != nil {
		return nil, err
	}
	return served.AppendWithHead(nil, c.Resource.Head, doc), nil
}

// bodyKind is what a call sends that is not an object of its resource as it is stored.
func bodyKind(c *call.Call) (gvk schema.GroupVersionKind, ok bool) {
	switch {
	case c.Sub != nil && c.Sub.Body != nil:
		return served.BodyGVK(c.Sub.Body), true
	case c.Handler() != resource.Generic:
		return c.Resource.GVK, true
	}
	return c.Resource.GVK, false
}

// errNoJSON is a patch that is none.
var errNoJSON = errors.New("the patch is no JSON")

// patchJSON is a patch in JSON, whatever it was sent in.
func patchJSON(d *call.Document) ([]byte, error) {
	if d.Type == string(types.ApplyYAMLPatchType) {
		doc, _, err := wire.YAMLToJSON(d.Body, false)
		return doc, err
	}
	if !json.Valid(d.Body) {
		return nil, errNoJSON
	}
	return bytes.Clone(d.Body), nil
}

// isPlainDelete reports that options ask for nothing.
func isPlainDelete(o *metav1.DeleteOptions) bool {
	return o.GracePeriodSeconds == nil && o.Preconditions == nil && o.PropagationPolicy == nil && len(o.DryRun) == 0 &&
		o.OrphanDependents == nil && o.IgnoreStoreReadErrorWithClusterBreakingPotential == nil //nolint:staticcheck // the old form of the policy
}

// tellAnswer has told what a call from within is answered, as it would have been by HTTP.
func (s *Server) tellAnswer(c *call.Call, a outcome) {
	p := answer.Reply{Call: c, Encoded: s.encoded, Log: s.log}
	switch gvk, _ := bodyKind(c); {
	case a.page != nil:
		p.TellCollection(a.page)
	case a.Gone && !c.Resource.Def.AnswersDeleted:
		p.TellDeleted(a.Item)
	case a.Item != nil:
		p.TellItem(a.Item)
	case a.Body != nil:
		p.TellPart(gvk, a.Body)
	}
}

// tellDeprecated has told, and shows, that the call is of a version that is deprecated.
func (s *Server) tellDeprecated(r *http.Request, c *call.Call) {
	text := c.Resource.Deprecated()
	if text == "" {
		return
	}
	is, release := c.Resource.GVK, removedIn(text)
	c.Audit.Deprecated(release)
	s.metrics.deprecated.WithLabelValues(is.Group, is.Version, c.Resource.Def.Plural, c.SubName(), release).Set(1)
	if c.Resource.Version != nil {
		s.noteLegacy(r, legacy.Call{Caller: legacy.Caller{Group: is.Group, Version: is.Version, Resource: c.Resource.Def.Plural, Subresource: c.SubName()}, Removed: release})
	}
}

// removedIn is the release that is without a version, as what clients are warned with
// says: "1.22". Empty: it does not say so.
func removedIn(deprecated string) string {
	_, after, _ := strings.Cut(deprecated, "unavailable in v")
	release, _, ok := strings.Cut(after, "+")
	if !ok {
		return ""
	}
	return release
}

// tellError has told what a request is answered that fails.
func tellError(told *audit.Request, err error) {
	if told != nil {
		told.AnsweredStatus(refusal.Status(err))
	}
}
