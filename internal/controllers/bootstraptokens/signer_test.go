package bootstraptokens

import "testing"

// TestSignatureIsWhatJoiningMachinesCheck compares with a signature that
// kubeadm's own code makes.
func TestSignatureIsWhatJoiningMachinesCheck(t *testing.T) {
	const want = "eyJhbGciOiJIUzI1NiIsImtpZCI6Impvc2h1YSJ9..VShe2taLd-YTrmWuRkcL_8QTNDHYxQIEBsAYYiIj1_8"
	if got := sign("Hello from the other side. I must have called a thousand times.", "joshua", "my voice is my passcode"); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
