package claims

import "strings"

// migrated are the CSI drivers that took the place of provisioners which were
// built in once.
var migrated = map[string]string{
	"kubernetes.io/aws-ebs":         "ebs.csi.aws.com",
	"kubernetes.io/azure-disk":      "disk.csi.azure.com",
	"kubernetes.io/azure-file":      "file.csi.azure.com",
	"kubernetes.io/cinder":          "cinder.csi.openstack.org",
	"kubernetes.io/gce-pd":          "pd.csi.storage.gke.io",
	"kubernetes.io/portworx-volume": "pxd.portworx.com",
	"kubernetes.io/vsphere-volume":  "csi.vsphere.vmware.com",
}

// Migrated is the CSI driver that does what a provisioner of this name once did;
// ok is false for all others.
func Migrated(provisioner string) (driver string, ok bool) {
	driver, ok = migrated[provisioner]
	return driver, ok
}

// BuiltIn reports whether a name is one of those that nobody but the cluster itself
// may have.
func BuiltIn(provisioner string) bool { return strings.HasPrefix(provisioner, "kubernetes.io/") }
