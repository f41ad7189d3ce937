package request

import (
	"errors"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kemudi/kemudi/internal/accept"
)

// Media types, as clients name them.
const (
	JSON  = "application/json"
	YAML  = "application/yaml"
	Proto = "application/vnd.kubernetes.protobuf"
)

// Types are the media types of objects, as a refusal lists them.
var Types = []string{JSON, YAML, Proto}

// StreamTypes are those of watches, as a refusal lists them.
var StreamTypes = []string{JSON + ";stream=watch", Proto + ";stream=watch"}

// Media is how bytes are written.
type Media uint8

// The ways to write objects.
const (
	MediaJSON Media = iota
	MediaProto
	MediaYAML
)

// ErrNotAcceptable says that none of the forms a client accepts can be served.
var ErrNotAcceptable = errors.New("no acceptable media type")

// Shape is what an answer is turned into besides its media type.
type Shape uint8

// The shapes of answers.
const (
	Object   Shape = iota // the object or list itself
	Table                 // as=Table
	Metadata              // as=PartialObjectMetadata or as=PartialObjectMetadataList
)

// Accept is the form of answer that was agreed on.
type Accept struct {
	Media  Media
	Shape  Shape
	List   bool // the metadata is to be that of a list
	Beta   bool // Table or metadata of meta.k8s.io/v1beta1
	Pretty bool
}

// Bytes is the media type whose bytes the answer is made of: YAML is converted.
func (a Accept) Bytes() Media {
	if a.Media == MediaProto {
		return MediaProto
	}
	return MediaJSON
}

// Allowed says what a request can be answered with.
type Allowed struct {
	Table, Metadata bool
	Stream          bool // the answer is a watch
	List            bool // the answer is a list
	NoProto         bool // objects have no protobuf form
}

// Negotiate chooses the first form of the Accept header, by its weights, that
// can be served.
func Negotiate(r *http.Request, can Allowed) (Accept, error) {
	header := r.Header.Get("Accept")
	switch header {
	case "", "*/*", JSON:
		return Accept{Pretty: WantsPretty(r)}, nil
	case Proto:
		if !can.NoProto {
			return Accept{Media: MediaProto}, nil
		}
	}
	for _, clause := range accept.Parse(header) {
		if a, ok := fits(&clause, can); ok {
			a.Pretty = a.Media == MediaJSON && (clause.Params["pretty"] == "1" || WantsPretty(r))
			return a, nil
		}
	}
	return Accept{}, ErrNotAcceptable
}

// fits is the form that an alternative of the header asks for, if it can be served.
func fits(c *accept.Clause, can Allowed) (a Accept, ok bool) {
	switch c.Kind {
	case JSON, "*/*", "application/*":
		a.Media = MediaJSON
	case Proto:
		a.Media = MediaProto
	case YAML:
		if can.Stream {
			return a, false
		}
		a.Media = MediaYAML
	default:
		return a, false
	}
	if stream := c.Params["stream"]; stream != "" && (stream != "watch" || a.Media == MediaYAML) {
		return a, false
	}
	as, group, version := c.Params["as"], c.Params["g"], c.Params["v"]
	if as == "" && group == "" && version == "" {
		return a, a.Media != MediaProto || !can.NoProto
	}
	if group != "meta.k8s.io" || version != "v1" && version != "v1beta1" {
		return a, false
	}
	a.Beta = version == "v1beta1"
	switch {
	case as == "Table" && can.Table && a.Media != MediaProto:
		a.Shape = Table
	case (as == "PartialObjectMetadata" || as == partialList) && can.Metadata:
		a.Shape, a.List = Metadata, as == partialList
	default:
		return a, false
	}
	return a, true
}

// partialList is how the metadata of the objects of a list is asked for.
const partialList = "PartialObjectMetadataList"

// Named reports whether an Accept header has one of the media types, or takes any, whatever else it
// asks for.
func Named(header string, kinds ...string) bool {
	return header == "" || slices.ContainsFunc(accept.Parse(header), func(c accept.Clause) bool {
		return c.Kind == "*/*" || slices.Contains(kinds, c.Kind)
	})
}

// WantsPretty: people who look at the API with these programs get indented JSON.
func WantsPretty(r *http.Request) bool {
	if r.URL.RawQuery != "" {
		if asked := r.URL.Query().Get("pretty"); asked != "" {
			pretty, _ := strconv.ParseBool(asked) // anything else is no
			return pretty
		}
	}
	agent := r.UserAgent()
	return strings.HasPrefix(agent, "curl") || strings.HasPrefix(agent, "Wget") || strings.HasPrefix(agent, "Mozilla/5.0")
}

// ContentType is the media type of a request's body without its parameters;
// a body without one is JSON. It is empty if the header cannot be read.
func ContentType(r *http.Request) string {
	header := r.Header.Get("Content-Type")
	switch types.PatchType(header) { // of nearly all requests it is one of these
	case "":
		return JSON
	case JSON, Proto, types.MergePatchType, types.StrategicMergePatchType, types.ApplyYAMLPatchType, types.JSONPatchType:
		return header
	}
	kind, _, err := mime.ParseMediaType(header)
	if err != nil {
		return ""
	}
	return kind
}
