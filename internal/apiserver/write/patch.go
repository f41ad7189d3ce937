package write

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"

	"github.com/kemudi/kemudi/internal/apiserver/call"
	"github.com/kemudi/kemudi/internal/apiserver/refusal"
	"github.com/kemudi/kemudi/internal/apiserver/request"
	"github.com/kemudi/kemudi/internal/apiserver/served"
	"github.com/kemudi/kemudi/internal/patch"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/wire"
)

// PatchTypes are the media types of patches.
var PatchTypes = []string{
	string(types.JSONPatchType), string(types.MergePatchType), string(types.ApplyYAMLPatchType), string(types.StrategicMergePatchType),
}

// DocumentPatchTypes are those of kinds that are known at run time only, as a refusal lists them.
var DocumentPatchTypes = PatchTypes[:3]

// CheckPatch refuses a patch that is no document at all, whatever it is of.
func CheckPatch(d call.Document) error {
	switch {
	case json.Valid(d.Body): // which YAML is, too
		return nil
	case types.PatchType(d.Type) != types.ApplyYAMLPatchType:
		return refusal.BadRequest("invalid JSON patch")
	case utilyaml.IsJSONBuffer(d.Body): // what is wrong is told when it is read
		return nil
	}
	if _, _, err := wire.YAMLToJSON(d.Body, false); err != nil {
		return refusal.BadRequest("error encoding patch: %v", err)
	}
	return nil
}

// Patch changes an object, or what a subresource covers, by the call's patch.
func (p *Pipeline) Patch(ctx context.Context, c *call.Call) (call.Result, error) {
	kind, data := types.PatchType(c.Patch.Type), c.Patch.Body
	if kind == types.ApplyYAMLPatchType {
		return p.apply(ctx, c, data)
	}
	d := diff{kind: kind, data: data}
	d.strict, d.bad = strictPatch(c, kind, data)
	item, err := p.Write(ctx, c, Change{Make: func(_ context.Context, old resource.Object) (resource.Object, error) {
		return p.patched(c, d, old)
	}})
	if err != nil {
		return call.Result{}, err
	}
	return c.Shown(item), nil
}

// diff is a patch as a client sent it, what strict reading has against it, and why it cannot be read.
type diff struct {
	kind   types.PatchType
	data   []byte
	strict []error
	bad    error
}

// jsonPatchOp is one operation of a JSON patch. Errors name it.
type jsonPatchOp struct {
	Op    string `json:"op,omitempty"`
	Path  string `json:"path,omitempty"`
	From  string `json:"from,omitempty"`
	Value any    `json:"value,omitempty"`
}

// strictPatch returns what a patch says twice, and what is unknown in the
// operations of a JSON patch. It is bad if those are none; other patches that cannot
// be read are refused later.
func strictPatch(c *call.Call, kind types.PatchType, data []byte) (strict []error, bad error) {
	if c.Validation == call.IgnoreFields {
		return nil, nil
	}
	if kind != types.JSONPatchType {
		var document map[string]any
		strict, _ = wire.DecodeJSONStrict(data, &document)
		return strict, nil
	}
	var operations []jsonPatchOp
	strict, err := wire.DecodeJSONStrict(data, &operations)
	if err != nil {
		return nil, refusal.BadRequest("error decoding patch: %s", strings.ReplaceAll(err.Error(), "write.jsonPatchOp", "handlers.jsonPatchOp"))
	}
	for i, err := range strict {
		strict[i] = fmt.Errorf("json patch %w", err)
	}
	return strict, nil
}

// patched returns a new object: old with the patch applied.
func (p *Pipeline) patched(c *call.Call, d diff, old resource.Object) (resource.Object, error) {
	if c.Sub != nil && c.Sub.Body != nil {
		body := c.Sub.Body.New()
		if err := p.patchInto(c, d, patching{served.BodyGVK(c.Sub.Body), c.Sub.Get(old), body}); err != nil {
			return nil, err
		}
		obj, err := setBody(c, old, body)
		if err != nil {
			return nil, err
		}
		return unnamed(obj, old), nil
	}
	shown, err := c.Resource.FromStorage(old)
	if err != nil {
		return nil, err
	}
	obj := c.Resource.New()
	if err := p.patchInto(c, d, patching{c.Resource.GVK, shown, obj}); err != nil {
		return nil, err
	}
	if err := c.RequireName(obj); err != nil {
		return nil, err
	}
	stored, err := c.Resource.ToStorage(obj)
	if err != nil {
		return nil, refusal.BadRequest("%v", err)
	}
	return covered(c, unnamed(stored, old), old), nil
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

func (p *Pipeline) patchInto(c *call.Call, d diff, at patching) error {
	if d.bad != nil {
		return d.bad
	}
	if patchPart(c, d, at) {
		return nil
	}
	doc, err := served.AppendAny(nil, request.MediaJSON, at.gvk, at.from)
	if err != nil {
		return err
	}
	doc, data, err := agree(c, d, doc)
	if err != nil {
		return invalidPatch(string(d.data), err.Error())
	}
	out, err := d.apply(doc, data, at.to)
	if err != nil {
		return err
	}
	strict, err := c.DecodeJSON(out, at.to)
	if err != nil {
		return d.unfit(patchResult{out, at.to, err})
	}
	if err := sameKind(at); err != nil && d.kind != types.StrategicMergePatchType { // which is not read as a document
		if doc, dynamic := at.to.(resource.Document); dynamic {
			return call.OtherKind(doc.GetName(), doc.GetObjectKind().GroupVersionKind(), at.gvk)
		}
		return invalidPatch(string(out), err.Error())
	}
	strict = slices.Concat(d.strict, strict)
	if len(strict) > 0 && c.Validation == call.StrictFields {
		return invalidPatch(d.shown(out), call.StrictText(strict))
	}
	if err := c.TellStrict(strict, at.gvk); err != nil {
		return err
	}
	served.ClearType(at.to)
	return nil
}

// apply applies the patch, which data is by today's means, to a document of the type
// that example has.
func (d diff) apply(doc, data []byte, example any) ([]byte, error) {
	switch d.kind {
	case types.JSONPatchType:
		return patch.JSON(doc, data)
	case types.MergePatchType:
		if out, ok := wire.MergeJSON(doc, data); ok {
			return out, nil
		}
		return patch.Merge(doc, data)
	case types.StrategicMergePatchType:
		return patch.Strategic(doc, data, example)
	}
	return nil, refusal.NoPatch()
}

// patchPart applies a merge patch to nothing but the members that it names: a
// patch of a pod's status need not write and read its spec. It reports false, and
// changes nothing, where there is more to it; whatever is refused is refused with
// the whole document, which the answer shows.
func patchPart(c *call.Call, d diff, at patching) bool {
	if d.kind == types.JSONPatchType || len(d.strict) > 0 || c.MayBeOld(d.data) {
		return false
	}
	part := patch.PartOf(at.from, d.data)
	if part == nil {
		return false
	}
	doc, err := served.AppendAny(nil, request.MediaJSON, at.gvk, part.Named())
	if err != nil {
		return false
	}
	out, ok := []byte(nil), false
	if d.kind == types.MergePatchType {
		out, ok = wire.MergeJSON(doc, d.data)
	}
	if !ok {
		if out, err = d.apply(doc, d.data, at.to); err != nil {
			return false
		}
	}
	fresh := reflect.New(reflect.TypeOf(at.to).Elem())
	into := patching{at.gvk, at.from, fresh.Interface().(runtime.Object)} // as at.to is one
	if strict, err := c.DecodeJSON(out, into.to); err != nil || len(strict) > 0 {
		return false
	}
	if sameKind(into) != nil && d.kind != types.StrategicMergePatchType {
		return false
	}
	part.Complete(into.to)
	served.ClearType(into.to)
	reflect.ValueOf(at.to).Elem().Set(fresh.Elem())
	return true
}

// agree brings a document and a patch of it to one form, where the patch has
// fields of an earlier release.
func agree(c *call.Call, d diff, doc []byte) (patched, data []byte, err error) {
	if d.kind != types.JSONPatchType {
		data, err = c.Modern(d.data, true)
		return doc, data, err
	}
	if c.Resource.Version == nil && (c.Sub == nil || c.Sub.Body == nil) {
		doc, err = c.Resource.Def.Antiquate(doc, d.data)
	}
	return doc, d.data, err
}

// sameKind refuses a document that a patch has made one of another kind.
func sameKind(p patching) error {
	got := p.to.GetObjectKind().GroupVersionKind()
	switch {
	case got.Kind != "" && got.Kind != p.gvk.Kind, !got.GroupVersion().Empty() && got.GroupVersion() != p.gvk.GroupVersion():
		return errors.New(call.Mismatch(got, p.gvk))
	}
	return nil
}

// patchResult is a patched document that cannot be read into an object, and why.
type patchResult struct {
	doc []byte
	to  runtime.Object
	err error
}

// unfit says what is wrong with a patch whose result is no object. A strategic merge
// is read without JSON.
func (d diff) unfit(r patchResult) error {
	if d.kind == types.StrategicMergePatchType {
		var result map[string]any
		if wire.DecodeJSON(r.doc, &result) == nil {
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(result, r.to); err != nil {
				return invalidPatch(d.shown(r.doc), err.Error())
			}
		}
	}
	return invalidPatch(d.shown(r.doc), r.err.Error())
}

// shown is what upstream's errors show of a patch with the result: that, its members in
// the order of their names, but of a strategic merge the patch itself.
func (d diff) shown(result []byte) string {
	var patch map[string]any
	if d.kind == types.StrategicMergePatchType && wire.DecodeJSON(d.data, &patch) == nil {
		return fmt.Sprintf("%+v", patch)
	}
	var members map[string]json.RawMessage
	if json.Unmarshal(result, &members) == nil {
		if sorted, err := json.Marshal(members); err == nil {
			return string(sorted)
		}
	}
	return string(result)
}

func invalidPatch(shown, why string) error {
	return apierrors.NewInvalid(schema.GroupKind{}, "", field.ErrorList{field.Invalid(field.NewPath("patch"), shown, why)})
}

// apply performs a server-side apply, which may make the object.
func (p *Pipeline) apply(ctx context.Context, c *call.Call, data []byte) (call.Result, error) {
	applied, err := readApplied(c, data)
	if err != nil {
		return call.Result{}, err
	}
	warnings, created := c.Warnings, false
	item, err := p.Write(ctx, c, Change{
		missing: c.Sub == nil, Tracked: true,
		Make: func(ctx context.Context, old resource.Object) (resource.Object, error) {
			c.Warnings = warnings
			created = old == nil
			return p.applied(ctx, c, applied, old)
		},
	})
	if err != nil {
		return call.Result{}, err
	}
	a := c.Shown(item)
	a.Code = okOrCreated(created)
	return a, nil
}

// readApplied reads what is applied, and checks that it is the object that the
// request names.
func readApplied(c *call.Call, data []byte) (*unstructured.Unstructured, error) {
	u := &unstructured.Unstructured{}
	duplicates, err := decodeApplied(c, data, u)
	if err != nil {
		return nil, refusal.BadRequest("error decoding patch: %v", err)
	}
	if c.Resource.Version == nil && (c.Sub == nil || c.Sub.Body == nil) {
		warnings, err := c.Resource.Def.Modernize(u.Object, false)
		if err != nil {
			return nil, refusal.BadRequest("%v", err)
		}
		for _, text := range warnings {
			c.Warn(text)
		}
	}
	if len(duplicates) > 0 {
		if err := tellDuplicates(c, duplicates); err != nil {
			return nil, err
		}
	}
	if u.GetManagedFields() != nil {
		return nil, refusal.BadRequest("metadata.managedFields must be nil")
	}
	// What it leaves open stays so: an object that is there has its name, and a new one must be given it.
	if err := c.FitName(&metav1.ObjectMeta{Name: u.GetName(), Namespace: u.GetNamespace()}); err != nil {
		return nil, err
	}
	return u, nil
}

// decodeApplied reads a document, which is YAML by its media type, but JSON more
// often than not: that is read much faster.
func decodeApplied(c *call.Call, data []byte, u *unstructured.Unstructured) (duplicates []error, err error) {
	if trimmed := bytes.TrimSpace(data); len(trimmed) > 0 && trimmed[0] == '{' {
		if duplicates, err = c.DecodeJSON(data, &u.Object); err == nil && len(duplicates) == 0 {
			return nil, nil
		}
		u.Object, duplicates = nil, nil // what is wrong is told by lines, as for YAML
	}
	doc, duplicate, err := wire.YAMLToJSON(data, c.Validation != call.IgnoreFields)
	if err != nil {
		return nil, err
	}
	if duplicate != nil {
		duplicates = append(duplicates, fmt.Errorf("error converting YAML to JSON: %w", duplicate))
	}
	if err := wire.DecodeJSON(doc, &u.Object); err != nil {
		return nil, fmt.Errorf("error unmarshaling JSON: while decoding JSON: %w", err)
	}
	if u.Object == nil {
		u.Object = map[string]any{} // of no kind
	}
	return duplicates, nil
}

func tellDuplicates(c *call.Call, errs []error) error {
	if c.Validation == call.StrictFields {
		return refusal.BadRequest("error strict decoding patch: %v", errors.Join(errs...))
	}
	return c.TellStrict(errs, c.Resource.GVK)
}

// applied merges what is applied into the stored object (nil: there is none).
func (p *Pipeline) applied(ctx context.Context, c *call.Call, applied *unstructured.Unstructured, old resource.Object) (resource.Object, error) {
	uid := applied.GetUID()
	if uid != "" && old == nil { // who names one means that very object, not a new one of its name
		return nil, c.Conflict(fmt.Errorf("uid mismatch: the provided object specified uid %s, and no existing object was found", uid))
	}
	w := fieldWrite(ctx, c)
	if c.Sub != nil && c.Sub.Body != nil {
		return p.appliedBody(ctx, c, applied, old)
	}
	obj, err := p.fields.Apply(w, old, applied.DeepCopy())
	if err != nil {
		return nil, applyError(err)
	}
	served.ClearType(obj)
	if err := c.RequireName(obj); err != nil {
		return nil, err
	}
	obj.SetResourceVersion(applied.GetResourceVersion())
	if uid != "" {
		obj.SetUID(uid) // which validation holds against the object's own
	}
	c.Resource.Def.Default(obj)
	c.Resource.Fill(obj)
	return covered(c, obj, old), nil
}

// appliedBody applies to a Scale: what it says of the replicas belongs to the
// manager by way of the subresource, and may be somebody else's.
func (p *Pipeline) appliedBody(ctx context.Context, c *call.Call, applied *unstructured.Unstructured, old resource.Object) (resource.Object, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(c.Sub.Get(old))
	if err != nil {
		return nil, err
	}
	mergeInto(content, applied.Object)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(content, c.Sub.Body.New()); err != nil {
		return nil, refusal.BadRequest("%v", err)
	}
	if got, want := applied.GroupVersionKind(), served.BodyGVK(c.Sub.Body); got != want {
		return nil, refusal.BadRequest("invalid object type: %v", got)
	}
	// The same, said of the object itself.
	part := &unstructured.Unstructured{Object: map[string]any{}}
	part.SetGroupVersionKind(c.Resource.GVK)
	part.SetName(old.GetName())
	part.SetNamespace(old.GetNamespace())
	if replicas, ok, _ := unstructured.NestedFieldCopy(applied.Object, "spec", "replicas"); ok {
		part.Object["spec"] = map[string]any{"replicas": replicas}
	}
	obj, err := p.fields.Apply(fieldWrite(ctx, c), old, part)
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
