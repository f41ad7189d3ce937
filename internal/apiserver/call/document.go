package call

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kemudi/kemudi/internal/apiserver/refusal"
	"github.com/kemudi/kemudi/internal/apiserver/request"
	"github.com/kemudi/kemudi/internal/apiserver/served"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/wire"
)

// Document is a request's body and how to read it.
type Document struct {
	Type string // media type
	Body []byte
}

// Decode reads the document into an object of the kind want, and clears the
// object's own kind and apiVersion. Unknown and duplicate fields are told as
// the call's field validation wants it.
func (d Document) Decode(c *Call, into runtime.Object, want schema.GroupVersionKind) error {
	var err error
	var strict []error
	switch d.Type {
	case request.Proto:
		err = d.decodeProto(into)
	case request.YAML:
		strict, err = d.decodeYAML(c, into)
	case request.JSON:
		strict, err = c.DecodeJSON(d.Body, into)
	default:
		return refusal.UnsupportedMedia(request.Types)
	}
	if mismatch := d.checkKind(into, want, err); mismatch != nil {
		return mismatch
	}
	if err := c.TellStrict(strict, want); err != nil {
		return err
	}
	served.ClearType(into)
	return nil
}

// DecodeJSON reads JSON in fields of today, and returns what strict reading has against it,
// unless the call's field validation ignores that.
func (c *Call) DecodeJSON(body []byte, into any) (strict []error, err error) {
	if c.MayBeOld(body) {
		var doc map[string]any
		if c.Validation != IgnoreFields {
			strict, _ = wire.DecodeJSONStrict(body, &doc) // what is said twice
		}
		if body, err = c.Modern(body, false); err != nil {
			return nil, err
		}
	}
	if d, ok := into.(resource.Document); ok {
		return c.decodeDocument(body, d)
	}
	if c.Validation == IgnoreFields {
		return nil, wire.DecodeJSON(body, into)
	}
	more, err := wire.DecodeJSONStrict(body, into)
	return append(strict, more...), err
}

// decodeDocument is DecodeJSON for an object of a kind that is known at run time only.
func (c *Call) decodeDocument(body []byte, into resource.Document) (strict []error, err error) {
	lenient := c.Validation == IgnoreFields
	strict, err = into.DecodeStrict(body, lenient)
	if err != nil || c.Resource.Version == nil || c.Resource.Version.Live == nil {
		return strict, err
	}
	live := c.Resource.Version.Live
	if live.Malformed != nil {
		if err := live.Malformed(into); err != nil {
			return strict, err
		}
	}
	if lenient || live.Unknown == nil {
		return strict, nil
	}
	for _, text := range live.Unknown(into) {
		strict = append(strict, errors.New(text))
	}
	return strict, nil
}

// MayBeOld says whether a document may have fields of an earlier release.
func (c *Call) MayBeOld(body []byte) bool {
	return c.Resource.Version == nil && (c.Sub == nil || c.Sub.Body == nil) && c.Resource.Def.HasOldFields(body)
}

// Modern returns a document, or a merge patch of one, by today's means.
func (c *Call) Modern(body []byte, patch bool) ([]byte, error) {
	if !c.MayBeOld(body) {
		return body, nil
	}
	body, warnings, err := c.Resource.Def.ModernizeJSON(body, patch)
	for _, text := range warnings {
		c.Warn(text)
	}
	return body, err
}

func (d Document) decodeYAML(c *Call, into any) (strict []error, err error) {
	doc, duplicate, err := wire.YAMLToJSON(d.Body, c.Validation != IgnoreFields)
	if err != nil {
		return nil, err
	}
	if duplicate != nil {
		strict = append(strict, duplicate)
	}
	more, err := c.DecodeJSON(doc, into)
	return append(strict, more...), err
}

func (d Document) decodeProto(into runtime.Object) error {
	meta, raw, err := wire.OpenProto(d.Body)
	if err != nil {
		return err
	}
	p, ok := into.(wire.Proto)
	if !ok {
		return served.ErrNoProto
	}
	if err := p.Unmarshal(raw); err != nil {
		return err
	}
	into.GetObjectKind().SetGroupVersionKind(schema.FromAPIVersionAndKind(meta.APIVersion, meta.Kind))
	return nil
}

// checkKind refuses a document that could not be read or is of another kind. Of kinds that are known at
// run time only documents must say what they are.
func (d Document) checkKind(into runtime.Object, want schema.GroupVersionKind, err error) error {
	got := into.GetObjectKind().GroupVersionKind()
	if err != nil || got.Version == "" { // which it may not have, or may not be one
		meta, unreadable := d.typeMeta()
		if unreadable != nil {
			return refusal.BadRequest("the object provided is unrecognized (must be of type %s): %v (%s)", want.Kind, unreadable, summary(d.Body))
		}
		got = schema.FromAPIVersionAndKind(meta.APIVersion, meta.Kind)
	}
	_, dynamic := into.(resource.Document)
	if dynamic && got.Kind == "" {
		return refusal.BadRequest("the object provided is unrecognized (must be of type %s): Object 'Kind' is missing in '%s' (%s)", want.Kind, d.Body, summary(d.Body))
	}
	if got.Kind == "" {
		got.Kind = want.Kind
	}
	if got.Version == "" && got.Group == "" && !dynamic {
		got.Group, got.Version = want.Group, want.Version
	}
	switch {
	case got.Kind != want.Kind && dynamic && err == nil && got.GroupVersion() == want.GroupVersion():
		return OtherKind(into.(metav1.Object).GetName(), got, want)
	case !dynamic && (got.Kind != want.Kind || got.GroupVersion() != want.GroupVersion() && !builtIn()[got]):
		return refusal.BadRequest("%s in version %q cannot be handled as a %s: %s", got.Kind, got.Version, want.Kind, Mismatch(got, want))
	case got.GroupVersion() != want.GroupVersion():
		return refusal.BadRequest("the API version in the data (%s) does not match the expected API version (%s)", got.GroupVersion(), want.GroupVersion())
	case err != nil:
		return refusal.BadRequest("%s in version %q cannot be handled as a %s: %v", got.Kind, got.Version, want.Kind, err)
	}
	return nil
}

// Accepted is the kind that the document of a subresource is to be of: in the
// version that it names, if the subresource reads that as well.
func (d Document) Accepted(b *resource.Body) schema.GroupVersionKind {
	if len(b.Also) > 0 {
		if meta, err := d.typeMeta(); err == nil && slices.Contains(b.Also, meta.APIVersion) {
			return schema.FromAPIVersionAndKind(meta.APIVersion, b.Kind)
		}
	}
	return served.BodyGVK(b)
}

// typeMeta reads just kind and apiVersion, which must be one if it is given.
func (d Document) typeMeta() (meta metav1.TypeMeta, err error) {
	switch d.Type {
	case request.Proto:
		m, _, err := wire.OpenProto(d.Body)
		return metav1.TypeMeta{Kind: m.Kind, APIVersion: m.APIVersion}, err
	case request.YAML:
		doc, _, err := wire.YAMLToJSON(d.Body, false)
		if err != nil {
			return meta, err
		}
		d.Body = doc
	}
	var found struct { // without a name, as upstream's errors have it
		APIVersion string `json:"apiVersion,omitempty"`
		Kind       string `json:"kind,omitempty"`
	}
	if err := json.Unmarshal(d.Body, &found); err != nil {
		return meta, fmt.Errorf("couldn't get version/kind; json parse error: %w", err)
	}
	_, err = schema.ParseGroupVersion(found.APIVersion)
	return metav1.TypeMeta{Kind: found.Kind, APIVersion: found.APIVersion}, err
}

// summary shows the start of a body that could not be read.
func summary(body []byte) string {
	const most = 30
	switch short := body[:min(len(body), most)]; {
	case len(body) == 0:
		return "<empty>"
	case body[0] == '{' && len(body) > most:
		return string(short) + " ..."
	case body[0] == '{':
		return string(short)
	case len(body) > most:
		return hex.EncodeToString(short) + " ..."
	default:
		return hex.EncodeToString(short)
	}
}

// TellStrict refuses unknown and duplicate fields, or warns of them.
func (c *Call) TellStrict(strict []error, want schema.GroupVersionKind) error {
	if len(strict) == 0 || c.Validation == IgnoreFields {
		return nil
	}
	if c.Validation == StrictFields {
		return refusal.BadRequest("%s in version %q cannot be handled as a %s: %s", want.Kind, want.Version, want.Kind, StrictText(strict))
	}
	for _, err := range strict {
		// What YAML says twice comes in lines, below a first one that says only that.
		text := strings.TrimPrefix(err.Error(), "error converting YAML to JSON: ")
		for line := range strings.SplitSeq(strings.TrimPrefix(text, "yaml: unmarshal errors:\n"), "\n") {
			c.Warn(strings.TrimSpace(line))
		}
	}
	return nil
}

// StrictText is what strict reading says, in upstream's words.
func StrictText(strict []error) string {
	texts := make([]string, len(strict))
	for i, err := range strict {
		texts[i] = err.Error()
	}
	return "strict decoding error: " + strings.Join(texts, ", ")
}

// DeleteOptions reads the options that may be in the body of a delete.
func (d Document) DeleteOptions(o *metav1.DeleteOptions) error {
	switch {
	case len(bytes.TrimSpace(d.Body)) == 0:
		return nil
	case d.Type != request.JSON && d.Type != request.YAML && d.Type != request.Proto:
		return refusal.UnsupportedMedia(request.Types)
	}
	if err := d.readOptions(o); err != nil || o.Kind != "" && o.Kind != optionsKind {
		return d.noOptions(err)
	}
	o.TypeMeta = metav1.TypeMeta{}
	return nil
}

const optionsKind = "DeleteOptions"

// readOptions reads what may be options of another kind, or none.
func (d Document) readOptions(o *metav1.DeleteOptions) error {
	switch d.Type {
	case request.Proto:
		meta, raw, err := wire.OpenProto(d.Body)
		if err != nil || meta.Kind != "" && meta.Kind != optionsKind {
			o.Kind = meta.Kind
			return err
		}
		return o.Unmarshal(raw)
	case request.YAML:
		doc, _, err := wire.YAMLToJSON(d.Body, false)
		if err != nil {
			return err
		}
		return wire.DecodeJSON(doc, o)
	}
	return wire.DecodeJSON(d.Body, o)
}

// noOptions says what is wrong with options, as the libraries do; why is what they say if they find
// nothing wrong.
func (d Document) noOptions(why error) error {
	codecs := &scheme.Codecs
	info, _ := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), d.Type)
	want := metav1.Unversioned.WithKind(optionsKind)
	o := &metav1.DeleteOptions{}
	obj, _, err := codecs.DecoderToVersion(info.Serializer, want.GroupVersion()).Decode(d.Body, &want, o)
	switch {
	case err != nil:
		why = err
	case obj != o || why == nil:
		why = errors.New("decoded object cannot be converted to DeleteOptions")
	}
	return refusal.BadRequest("%v", why)
}
