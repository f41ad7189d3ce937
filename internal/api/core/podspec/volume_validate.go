package podspec

import (
	"fmt"
	"path"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"

	"github.com/kemudi/kemudi/internal/api/core/check"
	"github.com/kemudi/kemudi/internal/resource"
)

const moreThanOneVolumeType = "may not specify more than 1 volume type"

// validateVolumes checks the volumes of a pod and returns those that containers
// may mount, by name. meta is the pod's; nil in a template.
func validateVolumes(errs *resource.Errors, volumes []corev1.Volume, meta *metav1.ObjectMeta) map[string]*corev1.Volume {
	if len(volumes) == 0 {
		return nil
	}
	good := make(map[string]*corev1.Volume, len(volumes))
	for i := range volumes {
		v := &volumes[i]
		at, before := errs.At("[%d]", i), errs.Len()
		validateVolumeSource(at, v, meta)
		if v.Name == "" {
			at.Required("name", "")
		} else {
			check.DNSLabel(at, "name", v.Name)
		}
		if good[v.Name] != nil {
			at.Duplicate("name", v.Name)
		}
		if errs.Len() == before {
			good[v.Name] = v
		}
		if v.PersistentVolumeClaim != nil && createsClaim(volumes, meta, v.PersistentVolumeClaim.ClaimName) {
			at.Invalid("persistentVolumeClaim.claimName", v.PersistentVolumeClaim.ClaimName,
				"must not reference a PVC that gets created for an ephemeral volume")
		}
	}
	return good
}

// createsClaim reports whether a claim of that name will be made for one of the
// pod's ephemeral volumes.
func createsClaim(volumes []corev1.Volume, meta *metav1.ObjectMeta, claim string) bool {
	for i := range volumes {
		if volumes[i].Ephemeral != nil && meta != nil && meta.Name != "" && meta.Name+"-"+volumes[i].Name == claim {
			return true
		}
	}
	return false
}

func validateVolumeSource(errs *resource.Errors, v *corev1.Volume, meta *metav1.ObjectMeta) {
	one := &check.Choice{Errs: errs, Many: moreThanOneVolumeType}
	validateNodeVolume(errs, one, &v.VolumeSource)
	validateObjectVolume(errs, one, &v.VolumeSource, meta != nil)
	validateClaimVolume(errs, one, v, meta)
	validateNetworkVolume(errs, one, v)
	validateVendorVolume(errs, one, &v.VolumeSource)
	if !one.Any {
		errs.Required("", "must specify a volume type")
	}
}

// validateNodeVolume checks volumes that live on the node.
func validateNodeVolume(errs *resource.Errors, one *check.Choice, s *corev1.VolumeSource) {
	if s.EmptyDir != nil && one.Take("emptyDir") {
		if s.EmptyDir.SizeLimit != nil && s.EmptyDir.SizeLimit.Sign() < 0 {
			errs.Forbidden("emptyDir.sizeLimit", "SizeLimit field must be a valid resource quantity")
		}
	}
	if s.HostPath != nil && one.Take("hostPath") {
		validateHostPath(errs.At("hostPath"), s.HostPath)
	}
	if s.GitRepo != nil && one.Take("gitRepo") {
		check.Required(errs, "gitRepo.repository", s.GitRepo.Repository)
		check.DescendingPath(errs, "gitRepo.directory", s.GitRepo.Directory)
	}
	if s.CSI != nil && one.Take("csi") {
		checkDriverName(errs, "csi.driver", s.CSI.Driver)
		if ref := s.CSI.NodePublishSecretRef; ref != nil {
			if ref.Name == "" {
				errs.Required("csi.nodePublishSecretRef.name", "")
			} else {
				check.DNSSubdomain(errs, "csi.name", ref.Name)
			}
		}
	}
}

// validateObjectVolume checks volumes that show API objects or images. Only a
// pod must say which image; a template may leave it to whoever fills it in.
func validateObjectVolume(errs *resource.Errors, one *check.Choice, s *corev1.VolumeSource, isPod bool) {
	if s.Secret != nil && one.Take("secret") {
		check.Required(errs, "secret.secretName", s.Secret.SecretName)
		check.Mode(errs, "secret.defaultMode", s.Secret.DefaultMode)
		validateKeysToPaths(errs.At("secret"), s.Secret.Items)
	}
	if s.ConfigMap != nil && one.Take("configMap") {
		check.Required(errs, "configMap.name", s.ConfigMap.Name)
		check.Mode(errs, "configMap.defaultMode", s.ConfigMap.DefaultMode)
		validateKeysToPaths(errs.At("configMap"), s.ConfigMap.Items)
	}
	if s.DownwardAPI != nil && one.Take("downwarAPI") {
		check.Mode(errs, "downwardAPI.defaultMode", s.DownwardAPI.DefaultMode)
		for i := range s.DownwardAPI.Items {
			validateDownwardAPIFile(errs.At("downwardAPI"), &s.DownwardAPI.Items[i])
		}
	}
	if s.Projected != nil && one.Take("projected") {
		validateProjected(errs.At("projected"), s.Projected)
	}
	if s.Image != nil && one.Take("image") {
		if isPod {
			check.Required(errs, "image.reference", s.Image.Reference)
		}
		checkPullPolicy(errs, "image.pullPolicy", s.Image.PullPolicy)
	}
}

// validateClaimVolume checks volumes that are persistent volume claims.
func validateClaimVolume(errs *resource.Errors, one *check.Choice, v *corev1.Volume, meta *metav1.ObjectMeta) {
	if v.PersistentVolumeClaim != nil && one.Take("persistentVolumeClaim") {
		check.Required(errs, "persistentVolumeClaim.claimName", v.PersistentVolumeClaim.ClaimName)
	}
	if v.Ephemeral == nil || !one.Take("ephemeral") {
		return
	}
	template := v.Ephemeral.VolumeClaimTemplate
	if template == nil {
		errs.Required("ephemeral.volumeClaimTemplate", "")
	} else {
		validateClaimTemplate(errs.At("ephemeral.volumeClaimTemplate"), template)
	}
	if meta != nil && meta.Name != "" && v.Name != "" {
		claim := meta.Name + "-" + v.Name
		for _, msg := range utilvalidation.IsDNS1123Subdomain(claim) {
			errs.Invalid("name", v.Name, fmt.Sprintf("PVC name %q: %v", claim, msg))
		}
	}
}

// validateClaimTemplate checks what a claim is made from: of its metadata only
// labels and annotations are used.
func validateClaimTemplate(errs *resource.Errors, t *corev1.PersistentVolumeClaimTemplate) {
	check.TemplateMeta(errs.At("metadata"), &t.ObjectMeta)
	ValidateClaimSpec(errs.At("spec"), &t.Spec)
}

func validateHostPath(errs *resource.Errors, h *corev1.HostPathVolumeSource) {
	if h.Path == "" {
		errs.Required("path", "")
		return
	}
	check.NoBacksteps(errs, "path", h.Path)
	if h.Type != nil {
		check.OneOf(errs, "type", *h.Type, corev1.HostPathUnset, corev1.HostPathBlockDev, corev1.HostPathCharDev,
			corev1.HostPathDirectory, corev1.HostPathDirectoryOrCreate, corev1.HostPathFile, corev1.HostPathFileOrCreate,
			corev1.HostPathSocket)
	}
}

func validateKeysToPaths(errs *resource.Errors, items []corev1.KeyToPath) {
	for i := range items {
		at := errs.At("items[%d]", i)
		check.Required(at, "key", items[i].Key)
		check.Required(at, "path", items[i].Path)
		check.LocalPath(at, "path", items[i].Path)
		check.Mode(at, "mode", items[i].Mode)
	}
}

// volumeFieldPaths are the fields of a pod that a volume may show.
var volumeFieldPaths = []string{
	"metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid",
}

func validateDownwardAPIFile(errs *resource.Errors, f *corev1.DownwardAPIVolumeFile) {
	check.Required(errs, "path", f.Path)
	check.LocalPath(errs, "path", f.Path)
	switch {
	case f.FieldRef != nil:
		validateFieldRef(errs.At("fieldRef"), f.FieldRef, volumeFieldPaths)
		if f.ResourceFieldRef != nil {
			errs.Invalid("", "resource", "fieldRef and resourceFieldRef can not be specified simultaneously")
		}
	case f.ResourceFieldRef != nil:
		at := errs.At("resourceFieldRef")
		if f.ResourceFieldRef.ContainerName == "" {
			at.Required("containerName", "")
			validateDivisor(at, f.ResourceFieldRef)
		} else {
			validateResourceFieldRef(at, f.ResourceFieldRef)
		}
	default:
		errs.Required("", "one of fieldRef and resourceFieldRef is required")
	}
	check.Mode(errs, "mode", f.Mode)
}

// checkDriverName accepts the name of a CSI driver.
func checkDriverName(errs *resource.Errors, at, name string) {
	check.Required(errs, at, name)
	if len(name) > 63 {
		errs.TooLong(at, 63)
	}
	for _, msg := range utilvalidation.IsDNS1123Subdomain(strings.ToLower(name)) {
		errs.Invalid(at, name, msg)
	}
}

func validateNFS(errs *resource.Errors, n *corev1.NFSVolumeSource) {
	check.Required(errs, "server", n.Server)
	check.Required(errs, "path", n.Path)
	if !path.IsAbs(n.Path) {
		errs.Invalid("path", n.Path, "must be an absolute path")
	}
}
