// Package oidc knows people by the tokens of OpenID providers, as an
// AuthenticationConfiguration or the flags --oidc-... describe them: [Issuers].
//
// config.go reads what is wanted, provider.go fetches the keys of one provider, issuer.go
// holds a token against the rules for it, expressions.go evaluates those that are in CEL.
//
// Invariants, cited by number in the code:
//
//	O1 A request waits for a provider only if its token bears that provider's name and a key that is not known yet, and no longer than [keyTimeout].
//	O2 What a provider sends takes no more memory than [maxDocument]; keys come by TLS alone.
//	O3 A configuration that is bad changes nothing; one that is good ends nothing that is in it as before.
package oidc
