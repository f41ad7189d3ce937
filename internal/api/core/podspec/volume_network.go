package podspec

import (
	"net"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"

	"github.com/kemudi/kemudi/internal/api/core/check"
	"github.com/kemudi/kemudi/internal/resource"
)

// validateNetworkVolume checks volumes that are reached by an open protocol.
func validateNetworkVolume(errs *resource.Errors, one *check.Choice, v *corev1.Volume) {
	if v.NFS != nil && one.Take("nfs") {
		validateNFS(errs.At("nfs"), v.NFS)
	}
	if v.ISCSI != nil && one.Take("iscsi") {
		s := v.ISCSI
		validateISCSI(errs.At("iscsi"), iscsi{
			portal: s.TargetPortal, iqn: s.IQN, lun: s.Lun, initiator: s.InitiatorName,
			chap: s.DiscoveryCHAPAuth || s.SessionCHAPAuth, hasSecret: s.SecretRef != nil,
			badPrefix: "must be valid format starting with iqn, eui, or naa",
		})
	}
	if v.ISCSI != nil && v.ISCSI.InitiatorName != nil && len(v.Name+":"+v.ISCSI.TargetPortal) > 64 {
		errs.Invalid("name", v.Name, iscsiTooLong)
	}
	if v.Glusterfs != nil && one.Take("glusterfs") {
		check.Required(errs, "glusterfs.endpoints", v.Glusterfs.EndpointsName)
		check.Required(errs, "glusterfs.path", v.Glusterfs.Path)
	}
	if v.RBD != nil && one.Take("rbd") {
		validateRBD(errs.At("rbd"), v.RBD.CephMonitors, v.RBD.RBDImage)
	}
	if v.CephFS != nil && one.Take("cephFS") && len(v.CephFS.Monitors) == 0 {
		errs.Required("cephfs.monitors", "")
	}
	if v.FC != nil && one.Take("fc") {
		validateFC(errs.At("fc"), v.FC)
	}
	if v.FlexVolume != nil && one.Take("flexVolume") {
		validateFlex(errs.At("flexVolume"), v.FlexVolume.Driver, v.FlexVolume.Options)
	}
}

// validateVendorVolume checks volumes of one vendor's storage.
func validateVendorVolume(errs *resource.Errors, one *check.Choice, s *corev1.VolumeSource) {
	if s.GCEPersistentDisk != nil && one.Take("gcePersistentDisk") {
		validateDisk(errs.At("persistentDisk"), "pdName", s.GCEPersistentDisk.PDName, s.GCEPersistentDisk.Partition)
	}
	if s.AWSElasticBlockStore != nil && one.Take("awsElasticBlockStore") {
		validateDisk(errs.At("awsElasticBlockStore"), "volumeID", s.AWSElasticBlockStore.VolumeID, s.AWSElasticBlockStore.Partition)
	}
	if s.Flocker != nil && one.Take("flocker") {
		validateFlocker(errs.At("flocker"), s.Flocker)
	}
	if s.Cinder != nil && one.Take("cinder") {
		check.Required(errs, "cinder.volumeID", s.Cinder.VolumeID)
		checkSecretRef(errs, "cinder.secretRef.name", s.Cinder.SecretRef)
	}
	if s.Quobyte != nil && one.Take("quobyte") {
		validateQuobyte(errs.At("quobyte"), s.Quobyte)
	}
	if s.AzureFile != nil && one.Take("azureFile") {
		check.Required(errs, "azureFile.secretName", s.AzureFile.SecretName)
		check.Required(errs, "azureFile.shareName", s.AzureFile.ShareName)
	}
	if s.VsphereVolume != nil && one.Take("vsphereVolume") {
		check.Required(errs, "vsphereVolume.volumePath", s.VsphereVolume.VolumePath)
	}
	if s.PhotonPersistentDisk != nil && one.Take("photonPersistentDisk") {
		check.Required(errs, "photonPersistentDisk.pdID", s.PhotonPersistentDisk.PdID)
	}
	if s.PortworxVolume != nil && one.Take("portworxVolume") {
		check.Required(errs, "portworxVolume.volumeID", s.PortworxVolume.VolumeID)
	}
	if s.AzureDisk != nil && one.Take("azureDisk") {
		validateAzureDisk(errs.At("azureDisk"), s.AzureDisk)
	}
	if s.StorageOS != nil && one.Take("storageos") {
		validateStorageOS(errs.At("storageos"), s.StorageOS.VolumeName, s.StorageOS.VolumeNamespace)
		checkSecretRef(errs, "storageos.secretRef.name", s.StorageOS.SecretRef)
	}
	if s.ScaleIO != nil && one.Take("scaleIO") {
		validateScaleIO(errs.At("scaleIO"), s.ScaleIO.Gateway, s.ScaleIO.System, s.ScaleIO.VolumeName)
	}
}

func checkSecretRef(errs *resource.Errors, at string, ref *corev1.LocalObjectReference) {
	if ref != nil {
		check.Required(errs, at, ref.Name)
	}
}

// iscsi is what the volumes of pods and persistent volumes have in common.
type iscsi struct {
	portal, iqn     string
	lun             int32
	initiator       *string
	chap, hasSecret bool
	badPrefix       string // what to say of a name of no known kind
}

const iscsiTooLong = "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if iscsi.initiatorName is specified."

var iscsiNames = map[string]*regexp.Regexp{
	"iqn": regexp.MustCompile(`iqn\.\d{4}-\d{2}\.([[:alnum:]-.]+)(:[^,;*&$|\s]+)$`),
	"eui": regexp.MustCompile(`^eui.[[:alnum:]]{16}$`),
	"naa": regexp.MustCompile(`^naa.[[:alnum:]]{32}$`),
}

func validateISCSI(errs *resource.Errors, s iscsi) {
	check.Required(errs, "targetPortal", s.portal)
	if s.iqn == "" {
		errs.Required("iqn", "")
	} else {
		checkISCSIName(errs, "iqn", s.iqn, s.badPrefix)
	}
	if s.lun < 0 || s.lun > 255 {
		errs.Invalid("lun", s.lun, utilvalidation.InclusiveRangeError(0, 255))
	}
	if s.chap && !s.hasSecret {
		errs.Required("secretRef", "")
	}
	if s.initiator != nil {
		checkISCSIName(errs, "initiatorname", *s.initiator, s.badPrefix)
	}
}

func checkISCSIName(errs *resource.Errors, at, name, badPrefix string) {
	rule := iscsiNames[name[:min(len(name), 3)]]
	switch {
	case rule == nil:
		errs.Invalid(at, name, badPrefix)
	case !rule.MatchString(name):
		errs.Invalid(at, name, "must be valid format")
	}
}

func validateFC(errs *resource.Errors, s *corev1.FCVolumeSource) {
	switch {
	case len(s.TargetWWNs) == 0 && len(s.WWIDs) == 0:
		errs.Required("targetWWNs", "must specify either targetWWNs or wwids, but not both")
	case len(s.TargetWWNs) != 0 && len(s.WWIDs) != 0:
		errs.Invalid("targetWWNs", s.TargetWWNs, "targetWWNs and wwids can not be specified simultaneously")
	}
	if len(s.TargetWWNs) == 0 {
		return
	}
	if s.Lun == nil {
		errs.Required("lun", "lun is required if targetWWNs is specified")
	} else if *s.Lun < 0 || *s.Lun > 255 {
		errs.Invalid("lun", *s.Lun, utilvalidation.InclusiveRangeError(0, 255))
	}
}

func validateDisk(errs *resource.Errors, idField, id string, partition int32) {
	check.Required(errs, idField, id)
	if partition < 0 || partition > 255 {
		errs.Invalid("partition", partition, utilvalidation.InclusiveRangeError(1, 255))
	}
}

func validateRBD(errs *resource.Errors, monitors []string, image string) {
	if len(monitors) == 0 {
		errs.Required("monitors", "")
	}
	check.Required(errs, "image", image)
}

func validateFlex(errs *resource.Errors, driver string, options map[string]string) {
	check.Required(errs, "driver", driver)
	for key := range options {
		domain, _, _ := strings.Cut(key, "/")
		domain = "." + strings.ToLower(domain)
		if strings.HasSuffix(domain, ".kubernetes.io") || strings.HasSuffix(domain, ".k8s.io") {
			errs.At("options[%s]", key).Invalid("", key, "kubernetes.io and k8s.io namespaces are reserved")
		}
	}
}

func validateFlocker(errs *resource.Errors, s *corev1.FlockerVolumeSource) {
	switch {
	case s.DatasetName == "" && s.DatasetUUID == "":
		errs.Required("", "one of datasetName and datasetUUID is required")
	case s.DatasetName != "" && s.DatasetUUID != "":
		errs.Invalid("", "resource", "datasetName and datasetUUID can not be specified simultaneously")
	}
	if strings.Contains(s.DatasetName, "/") {
		errs.Invalid("datasetName", s.DatasetName, "must not contain '/'")
	}
}

func validateQuobyte(errs *resource.Errors, s *corev1.QuobyteVolumeSource) {
	const pairs = "must be a host:port pair or multiple pairs separated by commas"
	switch {
	case s.Registry == "":
		errs.Required("registry", pairs)
	case len(s.Tenant) > 64:
		errs.Required("tenant", "must be a UUID and may not exceed a length of 64 characters")
	default:
		for pair := range strings.SplitSeq(s.Registry, ",") {
			if _, _, err := net.SplitHostPort(pair); err != nil {
				errs.Invalid("registry", s.Registry, pairs)
			}
		}
	}
	check.Required(errs, "volume", s.Volume)
}

func validateAzureDisk(errs *resource.Errors, s *corev1.AzureDiskVolumeSource) {
	check.Required(errs, "diskName", s.DiskName)
	check.Required(errs, "diskURI", s.DataDiskURI)
	if s.CachingMode != nil {
		check.OneOf(errs, "cachingMode", *s.CachingMode, corev1.AzureDataDiskCachingNone,
			corev1.AzureDataDiskCachingReadOnly, corev1.AzureDataDiskCachingReadWrite)
	}
	if s.Kind == nil {
		return
	}
	check.OneOf(errs, "kind", *s.Kind, corev1.AzureDedicatedBlobDisk, corev1.AzureManagedDisk, corev1.AzureSharedBlobDisk)
	managed := *s.Kind == corev1.AzureManagedDisk
	switch {
	case managed && !strings.HasPrefix(s.DataDiskURI, "/subscriptions/"):
		resource.NotSupported(errs, "diskURI", s.DataDiskURI,
			"/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}")
	case !managed && !strings.HasPrefix(s.DataDiskURI, "https://"):
		resource.NotSupported(errs, "diskURI", s.DataDiskURI,
			"https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd")
	}
}

func validateStorageOS(errs *resource.Errors, name, namespace string) {
	if name == "" {
		errs.Required("volumeName", "")
	} else {
		check.DNSLabel(errs, "volumeName", name)
	}
	if namespace != "" {
		check.DNSLabel(errs, "volumeNamespace", namespace)
	}
}

func validateScaleIO(errs *resource.Errors, gateway, system, volume string) {
	check.Required(errs, "gateway", gateway)
	check.Required(errs, "system", system)
	check.Required(errs, "volumeName", volume)
}
