// Package refusal has what clients of the API are told when a request fails. Every
// error that they see is made here or by the library's constructors, so that a
// text can be found and that reason and code agree. Which requests are refused is
// not decided here.
package refusal
