package https

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/conversion/queryparams"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/resource"
)

// call is a request as it is sent.
type call struct {
	method string
	path   string // escaped
	query  url.Values
	body   []byte
	kind   string // media type of body
	accept string
	known  bool // the revision that is asked for has been seen: a server without it is behind

	// For errors.
	verb string
	gr   schema.GroupResource
	name string
}

func (c *call) String() string {
	what := c.verb + " " + c.gr.String()
	if c.name != "" {
		what += " " + c.name
	}
	return what
}

// safe calls change nothing.
func (c *call) safe() bool { return c.method == http.MethodGet }

// place is where objects of a resource are; namespace is empty for all.
type place struct {
	def       *resource.Def
	namespace string
}

func (p place) path() string {
	var b strings.Builder
	if p.def.Group == "" {
		b.WriteString("/api/")
	} else {
		b.WriteString("/apis/" + p.def.Group + "/")
	}
	b.WriteString(p.def.Version)
	if p.def.Namespaced && p.namespace != "" {
		b.WriteString("/namespaces/" + url.PathEscape(p.namespace))
	}
	return b.String() + "/" + p.def.Plural
}

// encode makes of a request what is sent. The request's object is used up.
func (t *Transport) encode(r *client.Request) (*call, error) {
	c := &call{
		method: client.Method(r.Verb), path: place{r.Def, r.Namespace}.path(), query: url.Values{}, accept: accepts(r.Def),
		verb: r.Verb, gr: r.Def.GroupResource(), name: r.Name,
	}
	if c.method == "" {
		return nil, apierrors.NewMethodNotSupported(c.gr, r.Verb)
	}
	switch whole := r.Verb == "deletecollection" || r.Verb == "create" && r.Sub == ""; {
	case whole:
	case r.Name == "":
		return nil, apierrors.NewNotFound(c.gr, "") // its path would be that of all objects
	default:
		c.path += "/" + url.PathEscape(r.Name)
	}
	if r.Sub != "" {
		c.path += "/" + url.PathEscape(r.Sub)
	}
	return c, c.encodeBody(r)
}

func (c *call) encodeBody(r *client.Request) error {
	if r.Verb == "get" {
		return nil
	}
	if r.DryRun {
		c.query.Set("dryRun", metav1.DryRunAll)
	}
	if r.FieldManager != "" {
		c.query.Set("fieldManager", r.FieldManager)
	}
	var err error
	switch r.Verb {
	case "create", "update":
		c.body, c.kind, err = encodeObject(r)
	case "patch":
		c.body, c.kind = r.Patch, string(r.PatchType)
		c.query.Set("fieldValidation", metav1.FieldValidationIgnore)
		if r.Force != nil && r.PatchType == types.ApplyPatchType {
			c.query.Set("force", fmt.Sprint(*r.Force))
		}
	default:
		c.query = url.Values{}
		if r.Verb == "deletecollection" {
			c.query, err = listQuery(&r.List)
		}
		o := r.Delete
		if r.DryRun {
			o.DryRun = []string{metav1.DryRunAll}
		}
		if err == nil {
			c.body, err = inEnvelope(schema.GroupVersionKind{Version: "v1", Kind: "DeleteOptions"}, &o)
			c.kind = mediaProto
		}
	}
	if err != nil {
		return fmt.Errorf("encode %s: %w", c, err)
	}
	return nil
}

func listQuery(o *metav1.ListOptions) (url.Values, error) {
	query, err := queryparams.Convert(o)
	if err != nil {
		return nil, fmt.Errorf("encode list options: %w", err)
	}
	return query, nil
}

// listCall is a list of what is at a place.
func (t *Transport) listCall(p place, o *metav1.ListOptions) (*call, error) {
	query, err := listQuery(o)
	return &call{
		method: http.MethodGet, path: p.path(), query: query, accept: accepts(p.def), verb: "list", gr: p.def.GroupResource(),
	}, err
}

// request is the call as package net/http wants it, to a server.
func (t *Transport) request(ctx context.Context, to *server, c *call) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, c.method, to.base+c.path, bytes.NewReader(c.body))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c, err)
	}
	req.URL.RawQuery = c.query.Encode()
	req.Header.Set("Accept", c.accept)
	req.Header.Set("User-Agent", t.agent)
	if c.kind != "" {
		req.Header.Set("Content-Type", c.kind)
	}
	if t.token != nil || t.o.Token != nil {
		token, err := t.bearer(ctx)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c, err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
	}
	return req, nil
}

// bearer is the token to send.
func (t *Transport) bearer(ctx context.Context) (string, error) {
	if t.token != nil {
		return t.token(ctx)
	}
	return t.o.Token()
}
