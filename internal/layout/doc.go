// Package layout reads Go values by where they lie in memory: it is the one place
// that knows which fields of a struct make up its JSON form, and at which offset
// each of them is.
//
// [Fields] promises what encoding/json does (tests compare the two, for every kind
// that is served and for random types):
//
//   - fields in the order in which they are written, those of embedded structs in
//     the place of the struct; one that has a name in its tag is a field itself.
//     The option "inline" says nothing: embedding does.
//   - names as the tag has them, if they are valid there, or else Go's; no field
//     for json:"-", but one named "-" for json:"-,".
//   - of fields with one name that with the least depth, of those the only one
//     with a tag, or else none.
//   - omitempty and omitzero, with a type's own IsZero, as [Field.Omit].
//   - the option "string" where it has a meaning, as [Field.Quoted].
//
// Refused are structs with an embedded pointer to a struct, whose fields lie
// elsewhere or nowhere: such a type is for the library. How a value is written,
// and that a type has methods for it, is up to who asks.
//
// A [Ptr] is where a value lies. Reading it checks nothing: who makes a plan from
// types, once, must follow it only with pointers to values of those types.
package layout
