package apiserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kemudi/kemudi/internal/apiserver/refusal"
	"github.com/kemudi/kemudi/internal/apiserver/request"
	"github.com/kemudi/kemudi/internal/apiserver/served"
	"github.com/kemudi/kemudi/internal/patch"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/wire"
)

// patchTypes are the media types of patches, as a refusal lists them.
var patchTypes = []string{
	string(types.JSONPatchType), string(types.MergePatchType), string(types.ApplyYAMLPatchType), string(types.StrategicMergePatchType),
}

// patch changes an object, or what a subresource covers, by the call's patch.
func (s *Server) patch(ctx context.Context, c *call) (answer, error) {
	kind, data := types.PatchType(c.patch.kind), c.patch.body
	if kind == types.ApplyYAMLPatchType {
		return s.apply(ctx, c, data)
	}
	d := diff{kind: kind, data: data, strict: c.strictPatch(kind, data)}
	item, err := s.write(ctx, c, change{make: func(_ context.Context, old resource.Object) (resource.Object, error) {
		return s.patched(c, d, old)
	}})
	if err != nil {
		return answer{}, err
	}
	return c.shown(item), nil
}

// diff is a patch as a client sent it, and what strict reading has against it.
type diff struct {
	kind   types.PatchType
	data   []byte
	strict []error
}

// operation is one operation of a JSON patch.
type operation struct {
	Op    string `json:"op,omitempty"`
	Path  string `json:"path,omitempty"`
	From  string `json:"from,omitempty"`
	Value any    `json:"value,omitempty"`
}

// strictPatch returns what a patch says twice, and what is unknown in the
// operations of a JSON patch. A patch that cannot be read is refused later.
func (c *call) strictPatch(kind types.PatchType, data []byte) []error {
	if c.validation == ignoreFields {
		return nil
	}
	if kind != types.JSONPatchType {
		var document map[string]any
		strict, _ := wire.DecodeJSONStrict(data, &document)
		return strict
	}
	var operations []operation
	strict, _ := wire.DecodeJSONStrict(data, &operations)
	for i, err := range strict {
		strict[i] = fmt.Errorf("json patch %w", err)
	}
	return strict
}

// patched returns a new object: old with the patch applied.
func (s *Server) patched(c *call, d diff, old resource.Object) (resource.Object, error) {
	if c.sub != nil && c.sub.Body != nil {
		body := c.sub.Body.New()
		if err := s.patchInto(c, d, patching{served.BodyGVK(c.sub.Body), c.sub.Get(old), body}); err != nil {
			return nil, err
		}
		obj, err := c.setBody(old, body)
		if err != nil {
			return nil, err
		}
		return unnamed(obj, old), nil
	}
	shown, err := c.res.FromStorage(old)
	if err != nil {
		return nil, err
	}
	obj := c.res.New()
	if err := s.patchInto(c, d, patching{c.res.GVK, shown, obj}); err != nil {
		return nil, err
	}
	if err := c.fitName(obj); err != nil {
		return nil, err
	}
	stored, err := c.res.ToStorage(obj)
	if err != nil {
		return nil, refusal.BadRequest("%v", err)
	}
	return c.merge(unnamed(stored, old), old), nil
}

// unnamed clears a revision that the patch did not name: it is applied to
// whatever is newest.
func unnamed(obj, old resource.Object) resource.Object {
	if obj.GetResourceVersion() == old.GetResourceVersion() {
		obj.SetResourceVersion("")
	}
	return obj
}

// patching is a document to patch, its kind, and where the result goes.
type patching struct {
	gvk      schema.GroupVersionKind
	from, to runtime.Object
}

func (s *Server) patchInto(c *call, d diff, p patching) error {
	doc, err := served.AppendAny(nil, request.MediaJSON, p.gvk, p.from)
	if err != nil {
		return err
	}
	doc, data, err := c.agree(d, doc)
	if err != nil {
		return invalidPatch(string(d.data), err.Error())
	}
	var out []byte
	switch d.kind {
	case types.JSONPatchType:
		out, err = patch.JSON(doc, data)
	case types.MergePatchType:
		out, err = patch.Merge(doc, data)
	case types.StrategicMergePatchType:
		out, err = patch.Strategic(doc, data, p.to)
	default:
		return refusal.UnsupportedMedia(patchTypes)
	}
	if err != nil {
		return err
	}
	strict, err := decodeJSON(c, out, p.to)
	if err != nil {
		return unfitPatch(d, patchResult{out, p.to, err})
	}
	if err := c.sameKind(p); err != nil && d.kind != types.StrategicMergePatchType { // which is not read as a document
		return invalidPatch(string(out), err.Error())
	}
	strict = slices.Concat(d.strict, strict)
	if len(strict) > 0 && c.validation == strictFields {
		return invalidPatch(string(out), strictText(strict))
	}
	if err := c.tellStrict(strict, p.gvk); err != nil {
		return err
	}
	served.ClearType(p.to)
	return nil
}

// agree brings a document and a patch of it to one form, where the patch has
// fields of an earlier release.
func (c *call) agree(d diff, doc []byte) (patched, data []byte, err error) {
	if d.kind != types.JSONPatchType {
		data, err = c.modern(d.data, true)
		return doc, data, err
	}
	if c.res.Version == nil && (c.sub == nil || c.sub.Body == nil) {
		doc, err = c.res.Def.Antiquate(doc, d.data)
	}
	return doc, d.data, err
}

// sameKind refuses a document that a patch has made one of another kind.
func (c *call) sameKind(p patching) error {
	got := p.to.GetObjectKind().GroupVersionKind()
	switch {
	case got.Kind != "" && got.Kind != p.gvk.Kind:
		return fmt.Errorf("converting (%s.%s) to (%s.%s): unknown conversion", got.Version, got.Kind, p.gvk.Version, p.gvk.Kind)
	case !got.GroupVersion().Empty() && got.GroupVersion() != p.gvk.GroupVersion():
		return fmt.Errorf("no kind %q is registered for version %q", p.gvk.Kind, got.GroupVersion())
	}
	return nil
}

// patchResult is a patched document that cannot be read into an object, and why.
type patchResult struct {
	doc []byte
	to  runtime.Object
	err error
}

// unfitPatch says what is wrong with a patch whose result is no object. Clients
// know two forms of it: a strategic merge is read without JSON.
func unfitPatch(d diff, r patchResult) error {
	shown, why := string(d.data), r.err
	if d.kind == types.StrategicMergePatchType {
		var patch, result map[string]any
		if wire.DecodeJSON(d.data, &patch) == nil && wire.DecodeJSON(r.doc, &result) == nil {
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(result, r.to); err != nil {
				shown, why = fmt.Sprintf("%+v", patch), err
			}
		}
	}
	return invalidPatch(shown, why.Error())
}

func invalidPatch(shown, why string) error {
	return apierrors.NewInvalid(schema.GroupKind{}, "", field.ErrorList{field.Invalid(field.NewPath("patch"), shown, why)})
}

// apply performs a server-side apply, which may make the object.
func (s *Server) apply(ctx context.Context, c *call, data []byte) (answer, error) {
	applied, err := c.readApplied(data)
	if err != nil {
		return answer{}, err
	}
	warnings, created := c.warnings, false
	item, err := s.write(ctx, c, change{
		missing: c.sub == nil, tracked: true,
		make: func(_ context.Context, old resource.Object) (resource.Object, error) {
			c.warnings = warnings
			created = old == nil
			return s.applied(c, applied, old)
		},
	})
	if err != nil {
		return answer{}, err
	}
	a := c.shown(item)
	a.code = okOrCreated(created)
	return a, nil
}

// readApplied reads what is applied, and checks that it is the object that the
// request names.
func (c *call) readApplied(data []byte) (*unstructured.Unstructured, error) {
	u := &unstructured.Unstructured{}
	duplicates, err := c.decodeApplied(data, u)
	if err != nil {
		return nil, refusal.BadRequest("error decoding YAML: %v", err)
	}
	if c.res.Version == nil && (c.sub == nil || c.sub.Body == nil) {
		warnings, err := c.res.Def.Modernize(u.Object, false)
		if err != nil {
			return nil, refusal.BadRequest("%v", err)
		}
		for _, text := range warnings {
			c.warn(text)
		}
	}
	if len(duplicates) > 0 {
		if err := c.tellDuplicates(duplicates); err != nil {
			return nil, err
		}
	}
	if u.GetManagedFields() != nil {
		return nil, refusal.BadRequest("metadata.managedFields must be nil")
	}
	if err := c.fitName(u); err != nil {
		return nil, err
	}
	return u, nil
}

// decodeApplied reads a document, which is YAML by its media type, but JSON more
// often than not: that is read much faster.
func (c *call) decodeApplied(data []byte, u *unstructured.Unstructured) (duplicates []error, err error) {
	if trimmed := bytes.TrimSpace(data); len(trimmed) > 0 && trimmed[0] == '{' {
		if duplicates, err = decodeJSON(c, data, &u.Object); err == nil && len(duplicates) == 0 {
			return nil, nil
		}
		u.Object, duplicates = nil, nil // what is wrong is told by lines, as for YAML
	}
	doc, duplicate, err := wire.YAMLToJSON(data, c.validation != ignoreFields)
	if err != nil {
		return nil, err
	}
	if duplicate != nil {
		duplicates = append(duplicates, fmt.Errorf("error converting YAML to JSON: %w", duplicate))
	}
	if err := wire.DecodeJSON(doc, &u.Object); err != nil {
		return nil, err
	}
	if u.Object == nil {
		return nil, errNoBody
	}
	return duplicates, nil
}

func (c *call) tellDuplicates(errs []error) error {
	if c.validation == strictFields {
		return refusal.BadRequest("error strict decoding YAML: %v", errors.Join(errs...))
	}
	return c.tellStrict(errs, c.res.GVK)
}

// applied merges what is applied into the stored object (nil: there is none).
func (s *Server) applied(c *call, applied *unstructured.Unstructured, old resource.Object) (resource.Object, error) {
	uid := applied.GetUID()
	if uid != "" && old == nil { // who names one means that very object, not a new one of its name
		return nil, c.conflict(fmt.Errorf("uid mismatch: the provided object specified uid %s, and no existing object was found", uid))
	}
	w := c.fieldWrite()
	if c.sub != nil && c.sub.Body != nil {
		return s.appliedBody(c, applied, old)
	}
	obj, err := s.fields.Apply(w, old, applied.DeepCopy())
	if err != nil {
		return nil, applyError(err)
	}
	served.ClearType(obj)
	if err := c.fitName(obj); err != nil {
		return nil, err
	}
	obj.SetResourceVersion(applied.GetResourceVersion())
	if uid != "" {
		obj.SetUID(uid) // which validation holds against the object's own
	}
	c.res.Def.Default(obj)
	return c.merge(obj, old), nil
}

// appliedBody applies to a Scale: what it says of the replicas belongs to the
// manager by way of the subresource, and may be somebody else's.
func (s *Server) appliedBody(c *call, applied *unstructured.Unstructured, old resource.Object) (resource.Object, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(c.sub.Get(old))
	if err != nil {
		return nil, err
	}
	mergeInto(content, applied.Object)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(content, c.sub.Body.New()); err != nil {
		return nil, refusal.BadRequest("%v", err)
	}
	if got, want := applied.GroupVersionKind(), served.BodyGVK(c.sub.Body); got != want {
		return nil, refusal.BadRequest("invalid object type: %v", got)
	}
	// The same, said of the object itself.
	part := &unstructured.Unstructured{Object: map[string]any{}}
	part.SetGroupVersionKind(c.res.GVK)
	part.SetName(old.GetName())
	part.SetNamespace(old.GetNamespace())
	if replicas, ok, _ := unstructured.NestedFieldCopy(applied.Object, "spec", "replicas"); ok {
		part.Object["spec"] = map[string]any{"replicas": replicas}
	}
	obj, err := s.fields.Apply(c.fieldWrite(), old, part)
	if err != nil {
		return nil, applyError(err)
	}
	served.ClearType(obj)
	obj.SetResourceVersion(applied.GetResourceVersion())
	return obj, nil
}

// mergeInto sets in dst what src has, map by map.
func mergeInto(dst, src map[string]any) {
	for k, v := range src {
		from, isMap := v.(map[string]any)
		to, wasMap := dst[k].(map[string]any)
		if isMap && wasMap {
			mergeInto(to, from)
			continue
		}
		dst[k] = v
	}
}

// applyError: what the libraries have against an applied object is the
// client's mistake unless they say otherwise.
func applyError(err error) error {
	if apierrors.ReasonForError(err) != metav1.StatusReasonUnknown {
		return err
	}
	return refusal.BadRequest("%v", err)
}
