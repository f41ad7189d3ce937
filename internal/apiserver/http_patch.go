package apiserver

import (
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kemudi/kemudi/internal/apiserver/request"
)

func (p *reply) patch() {
	if !p.negotiate(request.Allowed{Table: true, Metadata: true}) {
		return
	}
	kind := types.PatchType(request.ContentType(p.r))
	switch kind {
	case types.JSONPatchType, types.MergePatchType, types.StrategicMergePatchType, types.ApplyYAMLPatchType:
	default:
		p.fail(unsupportedMedia(patchTypes))
		return
	}
	if err := p.patchOptions(kind); err != nil {
		p.fail(err)
		return
	}
	d, ok := p.body()
	if !ok {
		return
	}
	it, created, err := p.s.patch(p.r.Context(), p.c, kind, d.body)
	if err != nil {
		p.fail(err)
		return
	}
	if p.c.sub != nil && p.c.sub.Body != nil {
		p.object(http.StatusOK, gvkOf(p.c.sub.Body), p.c.sub.Get(it.Object))
		return
	}
	p.item(okOrCreated(created), it)
}

// patchOptions reads the parameters of a patch.
func (p *reply) patchOptions(kind types.PatchType) error {
	o := metav1.PatchOptions{}
	query := p.r.URL.Query()
	if err := metav1.Convert_url_Values_To_v1_PatchOptions(&query, &o, nil); err != nil {
		return badRequest("%v", err)
	}
	if errs := metav1validation.ValidatePatchOptions(&o, kind); len(errs) > 0 {
		return apierrors.NewInvalid(schema.GroupKind{Group: "meta.k8s.io", Kind: "PatchOptions"}, "", errs)
	}
	p.c.manager, p.c.validation, p.c.force = o.FieldManager, o.FieldValidation, o.Force
	p.c.dryRun = isDryRun(o.DryRun)
	return nil
}
