package csi

import (
	"math/rand/v2"
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/randfill"
	"sigs.k8s.io/yaml"
)

// TestVolumesAreWhatTheirDriversKnow: a volume of a kind that was built in once has the name, and is at the
// place, that the driver knows which stands in for it; others are what they say, or of no driver.
func TestVolumesAreWhatTheirDriversKnow(t *testing.T) {
	for _, c := range []struct{ source, want string }{
		{"{csi: {driver: disks.example.com, volumeHandle: vol-1}}", "kubernetes.io/csi/disks.example.com^vol-1"},
		{"{awsElasticBlockStore: {volumeID: 'aws://eu-west-1a/vol-1'}}", "kubernetes.io/csi/ebs.csi.aws.com^vol-1"},
		{"{awsElasticBlockStore: {volumeID: 'aws://eu-west-1a/nonsense'}}", ""},
		{"{azureDisk: {diskName: d, diskURI: /subscriptions/s/disks/d}}", "kubernetes.io/csi/disk.csi.azure.com^/subscriptions/s/disks/d"},
		{"{azureFile: {secretName: s, shareName: f}}", ""}, // of no namespace
		{"{azureFile: {secretName: s, shareName: f}, claimRef: {namespace: team, name: c}}", "kubernetes.io/csi/file.csi.azure.com^#s#f#pv#team"},
		{"{cinder: {volumeID: v}}", "kubernetes.io/csi/cinder.csi.openstack.org^v"},
		{"{gcePersistentDisk: {pdName: d}}", "kubernetes.io/csi/pd.csi.storage.gke.io^projects/UNSPECIFIED/zones/UNSPECIFIED/disks/d"},
		{"{portworxVolume: {volumeID: v}}", "kubernetes.io/csi/pxd.portworx.com^v"},
		{"{vsphereVolume: {volumePath: '[store] v.vmdk'}}", "kubernetes.io/csi/csi.vsphere.vmware.com^[store] v.vmdk"},
		{"{hostPath: {path: /data}}", ""},
		{"{nfs: {server: s, path: /}}", ""},
	} {
		v := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}}
		if err := yaml.Unmarshal([]byte(c.source), &v.Spec); err != nil {
			t.Fatal(err)
		}
		if got := nameOf(Of(v)); got != c.want {
			t.Errorf("volume %s: got %q, want %q", c.source, got, c.want)
		}
	}
}

// TestVolumesInPodsAreOfDriversOnlyIfTheyWereBuiltIn: a volume of source csi in a pod lives and ends with it.
func TestVolumesInPodsAreOfDriversOnlyIfTheyWereBuiltIn(t *testing.T) {
	for _, c := range []struct{ source, want string }{
		{"{csi: {driver: secrets.example.com}}", ""},
		{"{emptyDir: {}}", ""},
		{"{persistentVolumeClaim: {claimName: c}}", ""},
		{"{awsElasticBlockStore: {volumeID: vol-1}}", "kubernetes.io/csi/ebs.csi.aws.com^vol-1"},
		{"{azureFile: {secretName: s, shareName: f}}", "kubernetes.io/csi/file.csi.azure.com^#s#f##team"},
		{"{cinder: {volumeID: v}}", "kubernetes.io/csi/cinder.csi.openstack.org^v"},
		{"{vsphereVolume: {volumePath: v, storagePolicyName: gold}}", "kubernetes.io/csi/csi.vsphere.vmware.com^v"},
	} {
		v := &corev1.Volume{}
		if err := yaml.Unmarshal([]byte(c.source), &v.VolumeSource); err != nil {
			t.Fatal(err)
		}
		if got := nameOf(Inline(v, "team")); got != c.want {
			t.Errorf("volume %s: got %q, want %q", c.source, got, c.want)
		}
	}
}

func nameOf(v *corev1.PersistentVolume) string {
	if v == nil {
		return ""
	}
	return string(Name(v.Spec.CSI.Driver, v.Spec.CSI.VolumeHandle))
}

func TestNamesOfVolumesComeApart(t *testing.T) {
	for _, c := range []struct {
		name           corev1.UniqueVolumeName
		driver, handle string
		ok             bool
	}{
		{Name("d.example.com", "a^b/c"), "d.example.com", "a^b/c", true},
		{"kubernetes.io/csi/d.example.com^", "d.example.com", "", false},
		{"kubernetes.io/csi/^a", "", "a", false},
		{"kubernetes.io/csi/d.example.com", "d.example.com", "", false},
		{"kubernetes.io/aws-ebs/vol-1", "", "", false},
		{"", "", "", false},
	} {
		driver, handle, ok := Split(c.name)
		if ok != c.ok || ok && (driver != c.driver || handle != c.handle) {
			t.Errorf("%q: got %q, %q, %t, want %q, %q, %t", c.name, driver, handle, ok, c.driver, c.handle, c.ok)
		}
	}
}

// TestAnyVolumeCanBeLookedAt: whatever its fields are, and if nobody has filled them.
func TestAnyVolumeCanBeLookedAt(t *testing.T) {
	seed := rand.Int64()
	t.Logf("seed %d", seed)
	f, known := randfill.NewWithSeed(seed).NilChance(0.5).NumElements(0, 2), 0
	sources := reflect.TypeFor[corev1.PersistentVolumeSource]()
	for i := range sources.NumField() {
		for range 200 {
			v, in := &corev1.PersistentVolume{}, &corev1.Volume{}
			f.Fill(v)
			only(f, &v.Spec.PersistentVolumeSource, sources.Field(i).Name)
			only(f, &in.VolumeSource, sources.Field(i).Name)
			if Of(v) != nil {
				known++
			}
			if Inline(in, "team") != nil {
				known++
			}
			Plugin(v)
		}
	}
	if known == 0 {
		t.Error("none of the volumes was a driver's")
	}
}

// only gives a source the field, and no other.
func only(f *randfill.Filler, source any, name string) {
	s := reflect.ValueOf(source).Elem()
	s.SetZero()
	field := s.FieldByName(name)
	if !field.IsValid() || field.Kind() != reflect.Pointer {
		return
	}
	value := reflect.New(field.Type().Elem())
	f.FillNoCustom(value.Interface())
	field.Set(value)
}
