package csi

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	csitranslation "k8s.io/csi-translation-lib"
	"k8s.io/klog/v2"
)

// prefix is of the names of volumes of drivers, as nodes' statuses have them.
const prefix = "kubernetes.io/csi/"

// Name is what volumesInUse and volumesAttached of a node's status call a volume of a driver.
func Name(driver, handle string) corev1.UniqueVolumeName {
	return corev1.UniqueVolumeName(prefix + driver + "^" + handle)
}

// Split takes such a name apart; ok is false if it is none.
func Split(name corev1.UniqueVolumeName) (driver, handle string, ok bool) {
	rest, ok := strings.CutPrefix(string(name), prefix)
	driver, handle, named := strings.Cut(rest, "^")
	return driver, handle, ok && named && driver != "" && handle != ""
}

// translator knows the kinds of old. It holds nothing that changes.
var translator = csitranslation.New()

// silent is the log of the translation, which says nothing that is not in its errors.
var silent = klog.Logger{}

// Of is a volume as its driver knows it: itself if it is of source csi, a copy that is for one that was
// built in once; nil if no driver sees to it. It is read-only.
func Of(v *corev1.PersistentVolume) *corev1.PersistentVolume {
	switch {
	case v.Spec.CSI != nil:
		return v
	case !translator.IsPVMigratable(v):
		return nil
	}
	translated, err := translator.TranslateInTreePVToCSI(silent, v)
	if err != nil || translated.Spec.CSI == nil {
		return nil
	}
	return translated
}

// Inline is a volume that stands in a pod itself as the driver knows it that stands in for its kind; nil
// for all others, those of source csi among them: they live and end with their pod, on its node alone.
func Inline(v *corev1.Volume, namespace string) *corev1.PersistentVolume {
	s := &v.VolumeSource
	once := s.AWSElasticBlockStore != nil || s.AzureDisk != nil || s.AzureFile != nil || s.Cinder != nil ||
		s.GCEPersistentDisk != nil || s.PortworxVolume != nil || s.VsphereVolume != nil
	if !once { // at a glance, as nearly all are
		return nil
	}
	policy := ""
	if s.VsphereVolume != nil && s.VsphereVolume.StoragePolicyName != "" { // of which the library (v0.37.2) dies
		v = v.DeepCopy()
		policy, v.VsphereVolume.StoragePolicyName = v.VsphereVolume.StoragePolicyName, ""
	}
	translated, err := translator.TranslateInTreeInlineVolumeToCSI(silent, v, namespace)
	if err != nil || translated.Spec.CSI == nil {
		return nil
	}
	if policy != "" {
		translated.Spec.CSI.VolumeAttributes["storagepolicyname"] = policy
	}
	return translated
}

// Plugin is what a volume of a kind that was built in once had that saw to it; empty for all others.
func Plugin(v *corev1.PersistentVolume) string {
	plugin, err := translator.GetInTreePluginNameFromSpec(v, nil)
	if err != nil {
		return ""
	}
	return plugin
}

// Driver is the driver that does what a plugin of this name, a provisioner's, once did; ok is false
// for all others.
func Driver(plugin string) (driver string, ok bool) {
	driver, err := translator.GetCSINameFromInTreeName(plugin)
	return driver, err == nil
}
