// Package bootstraptokens looks after the tokens that machines join with, which
// are secrets of kube-system: Cleaner deletes those that have ended, Signer
// signs the ConfigMap cluster-info in kube-public with each, so that who knows a
// token can tell whether what it reads there is genuine.
package bootstraptokens
