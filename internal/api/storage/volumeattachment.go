package storage

import (
	storagev1 "k8s.io/api/storage/v1"
	storagev1beta1 "k8s.io/api/storage/v1beta1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/api/core/csi"
	"github.com/kemudi/kemudi/internal/resource"
)

// What the status of an attachment may come to, in bytes.
const (
	maxAttachmentMetadata = 256 << 10
	maxVolumeErrorMessage = 1024
)

// VolumeAttachments attach a volume to a node.
var VolumeAttachments = resource.Define(resource.Spec[*storagev1.VolumeAttachment]{
	Names:  resource.Names{Group: "storage.k8s.io", Version: "v1", Kind: "VolumeAttachment", Plural: "volumeattachments"},
	Update: resource.UpdateNeedsRevision,
	Prepare: func(obj, old *storagev1.VolumeAttachment) {
		if old == nil {
			obj.Status = storagev1.VolumeAttachmentStatus{}
			return
		}
		obj.Status = old.Status
	},
	Validate: validateVolumeAttachment,
	Index: map[string]func(*storagev1.VolumeAttachment) []string{
		IndexNode:   func(a *storagev1.VolumeAttachment) []string { return []string{a.Spec.NodeName} },
		IndexVolume: attachedVolume,
	},
	Columns: []resource.Column[*storagev1.VolumeAttachment]{
		{Name: "Attacher", Format: "name", Description: storagev1.VolumeAttachmentSpec{}.SwaggerDoc()["attacher"], Value: func(a *storagev1.VolumeAttachment) any { return a.Spec.Attacher }},
		{Name: "PV", Description: storagev1.VolumeAttachmentSource{}.SwaggerDoc()["persistentVolumeName"], Value: func(a *storagev1.VolumeAttachment) any {
			return ptr.Deref(a.Spec.Source.PersistentVolumeName, "")
		}},
		{Name: "Node", Description: storagev1.VolumeAttachmentSpec{}.SwaggerDoc()["nodeName"], Value: func(a *storagev1.VolumeAttachment) any { return a.Spec.NodeName }},
		{Name: "Attached", Type: "boolean", Description: storagev1.VolumeAttachmentStatus{}.SwaggerDoc()["attached"], Value: func(a *storagev1.VolumeAttachment) any { return a.Status.Attached }},
	},
	Sub: []resource.Sub[*storagev1.VolumeAttachment]{{
		Name: "status", Keeps: resource.KeepsMetadata,
		Merge: func(obj, old *storagev1.VolumeAttachment) { obj.Spec = old.Spec },
	}},
	Versions: []resource.Version[*storagev1.VolumeAttachment]{resource.SameWire[*storagev1beta1.VolumeAttachment](resource.Version[*storagev1.VolumeAttachment]{
		Group: "storage.k8s.io", Version: "v1beta1",
		Deprecated: "storage.k8s.io/v1beta1 VolumeAttachment is deprecated in v1.19+, unavailable in v1.22+; use storage.k8s.io/v1 VolumeAttachment",
	})},
})

// Indexes of VolumeAttachments.
const (
	IndexNode   = "node"   // their node
	IndexVolume = "volume" // the name of their PersistentVolume, or what nodes call one that stands in pods
)

func attachedVolume(a *storagev1.VolumeAttachment) []string {
	switch s := &a.Spec.Source; {
	case s.PersistentVolumeName != nil:
		return []string{*s.PersistentVolumeName}
	case s.InlineVolumeSpec != nil && s.InlineVolumeSpec.CSI != nil:
		return []string{string(csi.Name(a.Spec.Attacher, s.InlineVolumeSpec.CSI.VolumeHandle))}
	}
	return nil
}

func validateVolumeAttachment(obj, old *storagev1.VolumeAttachment, errs *resource.Errors) {
	s := &obj.Spec
	if old == nil {
		validateDriverName(s.Attacher, errs.At("spec.attacher"))
	} else if s.Attacher == "" {
		errs.Required("spec.attacher", "")
	}
	name := s.Source.PersistentVolumeName
	switch {
	case s.Source.InlineVolumeSpec == nil && name == nil:
		errs.Required("spec.source", "must specify exactly one of inlineVolumeSpec and persistentVolumeName")
	case s.Source.InlineVolumeSpec != nil && name != nil:
		errs.Forbidden("spec.source", "must specify exactly one of inlineVolumeSpec and persistentVolumeName")
	case name != nil && *name == "":
		errs.Required("spec.source.persistentVolumeName", "must specify non empty persistentVolumeName")
	case name != nil && old == nil:
		errs.Refuse("spec.source.persistentVolumeName", *name, resource.DNS1123Subdomain(*name, false))
	}
	errs.Refuse("spec.nodeName", s.NodeName, resource.DNS1123Subdomain(s.NodeName, false))

	size := 0
	for k, v := range obj.Status.AttachmentMetadata {
		size += len(k) + len(v)
	}
	if size > maxAttachmentMetadata {
		errs.TooLong("status.attachmentMetadata", maxAttachmentMetadata)
	}
	validateVolumeError(obj.Status.AttachError, errs.At("status.attachError"))
	validateVolumeError(obj.Status.DetachError, errs.At("status.detachError"))
	if old != nil && !equality.Semantic.DeepEqual(obj.Spec, old.Spec) {
		errs.Immutable("spec", obj.Spec)
	}
}

func validateVolumeError(e *storagev1.VolumeError, errs *resource.Errors) {
	if e == nil {
		return
	}
	if len(e.Message) > maxVolumeErrorMessage {
		errs.TooLong("message", maxVolumeErrorMessage)
	}
	if c := ptr.Deref(e.ErrorCode, 0); c < 0 {
		errs.Invalid("errorCode", c, "must be between 0 and 2147483647, inclusive")
	}
}
