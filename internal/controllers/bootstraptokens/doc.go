// Package bootstraptokens looks after the tokens that machines join with, which
// are secrets of kube-system. Cleaner deletes those that have ended. Signer signs
// the ConfigMap cluster-info in kube-public with each of them: a machine that has
// a token can verify what it reads there.
package bootstraptokens
