package storage

import "testing"

// TestAttachmentsAreNamedAsInOtherClusters: nodes and attachers of other makes
// find an attachment by its name alone.
func TestAttachmentsAreNamedAsInOtherClusters(t *testing.T) {
	// By sha256sum of "vol-1ebs.csi.aws.comnode-1".
	const want = "csi-58932ddfc9a6504f794af09a26429db947138ba3d683dee3d975aa932cb39f48"
	if got := AttachmentName("vol-1", "ebs.csi.aws.com", "node-1"); got != want {
		t.Errorf("attachment of vol-1 of ebs.csi.aws.com to node-1 is %s, want %s", got, want)
	}
}
