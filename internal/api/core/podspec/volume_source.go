package podspec

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/kemudi/kemudi/internal/api/core/check"
	"github.com/kemudi/kemudi/internal/resource"
)

// ValidateVolumeSource checks where the data of a persistent volume are.
func ValidateVolumeSource(errs *resource.Errors, v *corev1.PersistentVolume) {
	one := &check.Choice{Errs: errs, Many: moreThanOneVolumeType}
	validateOpenVolume(errs, one, v)
	validateVendorPV(errs, one, &v.Spec)
	if !one.Any {
		errs.Required("", "must specify a volume type")
	}
}

// validateOpenVolume checks persistent volumes that are reached by an open
// protocol, or are on a node.
func validateOpenVolume(errs *resource.Errors, one *check.Choice, v *corev1.PersistentVolume) {
	s := &v.Spec
	if s.HostPath != nil && one.Take("hostPath") {
		validateHostPath(errs.At("hostPath"), s.HostPath)
	}
	if s.Local != nil && one.Take("local") {
		if s.Local.Path == "" {
			errs.Required("local.path", "")
		} else {
			check.NoBacksteps(errs, "local.path", s.Local.Path)
		}
		if s.NodeAffinity == nil {
			errs.Required("nodeAffinity", "Local volume requires node affinity")
		}
	}
	if s.NFS != nil && one.Take("nfs") {
		validateNFS(errs.At("nfs"), s.NFS)
	}
	if s.ISCSI != nil && one.Take("iscsi") {
		validateISCSI(errs.At("iscsi"), iscsi{
			portal: s.ISCSI.TargetPortal, iqn: s.ISCSI.IQN, lun: s.ISCSI.Lun, initiator: s.ISCSI.InitiatorName,
			chap: s.ISCSI.DiscoveryCHAPAuth || s.ISCSI.SessionCHAPAuth, hasSecret: s.ISCSI.SecretRef != nil,
			badPrefix: "must be valid format",
		})
		if s.ISCSI.InitiatorName != nil && len(v.Name+":"+s.ISCSI.TargetPortal) > 64 {
			errs.Invalid("iscsi.targetportal", s.ISCSI.TargetPortal, iscsiTooLong)
		}
		if s.ISCSI.SecretRef != nil {
			check.Required(errs, "iscsi.secretRef.name", s.ISCSI.SecretRef.Name)
		}
	}
	if s.RBD != nil && one.Take("rbd") {
		validateRBD(errs.At("rbd"), s.RBD.CephMonitors, s.RBD.RBDImage)
	}
	if s.CephFS != nil && one.Take("cephFS") && len(s.CephFS.Monitors) == 0 {
		errs.Required("cephfs.monitors", "")
	}
	if s.FC != nil && one.Take("fc") {
		validateFC(errs.At("fc"), s.FC)
	}
	if s.FlexVolume != nil && one.Take("flexVolume") {
		validateFlex(errs.At("flexVolume"), s.FlexVolume.Driver, s.FlexVolume.Options)
	}
	if s.CSI != nil && one.Take("csi") {
		validateCSI(errs.At("csi"), s.CSI)
	}
	if g := s.Glusterfs; g != nil && one.Take("glusterfs") {
		check.Required(errs, "glusterfs.endpoints", g.EndpointsName)
		check.Required(errs, "glusterfs.path", g.Path)
		if g.EndpointsNamespace != nil && *g.EndpointsNamespace == "" {
			errs.Invalid("glusterfs.endpointsNamespace", "", "if the endpointnamespace is set, it must be a valid namespace name")
		} else if g.EndpointsNamespace != nil {
			check.DNSLabel(errs, "glusterfs.endpointsNamespace", *g.EndpointsNamespace)
		}
	}
}

func validateCSI(errs *resource.Errors, s *corev1.CSIPersistentVolumeSource) {
	checkDriverName(errs, "driver", s.Driver)
	check.Required(errs, "volumeHandle", s.VolumeHandle)
	checkObjectRef(errs.At("controllerPublishSecretRef"), s.ControllerPublishSecretRef)
	checkObjectRef(errs.At("controllerExpandSecretRef"), s.ControllerExpandSecretRef)
	checkObjectRef(errs.At("nodePublishSecretRef"), s.NodePublishSecretRef)
	checkObjectRef(errs.At("nodeExpandSecretRef"), s.NodeExpandSecretRef)
}

func checkObjectRef(errs *resource.Errors, ref *corev1.SecretReference) {
	if ref == nil {
		return
	}
	if ref.Name == "" {
		errs.Required("name", "")
	} else {
		check.DNSSubdomain(errs, "name", ref.Name)
	}
	if ref.Namespace == "" {
		errs.Required("namespace", "")
	} else {
		check.DNSLabel(errs, "namespace", ref.Namespace)
	}
}

// validateVendorPV checks persistent volumes of one vendor's storage.
func validateVendorPV(errs *resource.Errors, one *check.Choice, s *corev1.PersistentVolumeSpec) {
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
		if ref := s.Cinder.SecretRef; ref != nil {
			check.Required(errs, "cinder.secretRef.name", ref.Name)
			check.Required(errs, "cinder.secretRef.namespace", ref.Namespace)
		}
	}
	if s.Quobyte != nil && one.Take("quobyte") {
		validateQuobyte(errs.At("quobyte"), s.Quobyte)
	}
	if s.AzureFile != nil && one.Take("azureFile") {
		check.Required(errs, "azureFile.secretName", s.AzureFile.SecretName)
		check.Required(errs, "azureFile.shareName", s.AzureFile.ShareName)
		if s.AzureFile.SecretNamespace != nil {
			check.Required(errs, "azureFile.secretNamespace", *s.AzureFile.SecretNamespace)
		}
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
	if s.ScaleIO != nil && one.Take("scaleIO") {
		validateScaleIO(errs.At("scaleIO"), s.ScaleIO.Gateway, s.ScaleIO.System, s.ScaleIO.VolumeName)
	}
	if s.StorageOS != nil && one.Take("storageos") {
		validateStorageOS(errs.At("storageos"), s.StorageOS.VolumeName, s.StorageOS.VolumeNamespace)
		if ref := s.StorageOS.SecretRef; ref != nil {
			check.Required(errs, "storageos.secretRef.name", ref.Name)
			check.Required(errs, "storageos.secretRef.namespace", ref.Namespace)
		}
	}
}
