package patch

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/mergepatch"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	kjson "sigs.k8s.io/json"
)

// maxOperations bounds a JSON patch.
const maxOperations = 10000

// Each copy operation of a JSON patch may double the document, so what they add
// in all is bounded, in bytes. The library has a variable for that, which is
// nobody's to change later.
var _ = limitCopies(3 << 20)

func limitCopies(n int64) (set bool) {
	jsonpatch.AccumulatedCopySizeLimit = n
	return true
}

// JSON applies an RFC 6902 patch to a JSON document. Errors are what the API answers.
func JSON(doc, patch []byte) ([]byte, error) {
	p, err := jsonpatch.DecodePatch(patch)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if len(p) > maxOperations {
		return nil, apierrors.NewRequestEntityTooLargeError(
			fmt.Sprintf("The allowed maximum operations in a JSON patch is %d, got %d", maxOperations, len(p)))
	}
	out, err := p.Apply(doc)
	if err != nil {
		return nil, unprocessable(err)
	}
	return out, nil
}

// Merge applies an RFC 7386 patch to a JSON document.
func Merge(doc, patch []byte) ([]byte, error) {
	var probe map[string]any
	if err := json.Unmarshal(patch, &probe); err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("error decoding patch: %v", err))
	}
	out, err := jsonpatch.MergePatch(doc, patch)
	if errors.Is(err, jsonpatch.ErrBadJSONPatch) {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	return out, err
}

// Strategic applies a strategic merge patch to a JSON document of the type that
// example, a struct or a pointer to one, has.
func Strategic(doc, patch []byte, example any) ([]byte, error) {
	// Numbers stay the integers that they are: as floats they would be rounded above 2^53.
	var original, change map[string]any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(doc, &original); err != nil {
		return nil, fmt.Errorf("decode object to patch: %w", err)
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(patch, &change); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	lookup, err := strategicpatch.NewPatchMetaFromStruct(example)
	if err != nil {
		return nil, unprocessable(err)
	}
	merged, err := strategicpatch.StrategicMergeMapPatchUsingLookupPatchMeta(original, change, lookup)
	if err != nil {
		return nil, strategicError(err)
	}
	return json.Marshal(merged)
}

func strategicError(err error) error {
	switch {
	case errors.Is(err, mergepatch.ErrBadJSONDoc), errors.Is(err, mergepatch.ErrBadPatchFormatForPrimitiveList),
		errors.Is(err, mergepatch.ErrBadPatchFormatForRetainKeys), errors.Is(err, mergepatch.ErrBadPatchFormatForSetElementOrderList),
		errors.Is(err, mergepatch.ErrUnsupportedStrategicMergePatchFormat):
		return apierrors.NewBadRequest(err.Error())
	case errors.Is(err, mergepatch.ErrNoListOfLists), mergepatch.IsPreconditionFailed(err):
		return unprocessable(err)
	}
	return unprocessable(err)
}

// unprocessable says that a patch is well formed but cannot be applied here.
func unprocessable(err error) error {
	return apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "", schema.GroupResource{}, "", err.Error(), 0, false)
}
