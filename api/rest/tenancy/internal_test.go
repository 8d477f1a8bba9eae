package tenancy

// IsFinal is what says whether a statement is final.
var IsFinal = isFinal
