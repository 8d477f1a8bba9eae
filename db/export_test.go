package db

// The lists of rights, for the test that compares them with the catalogue.
var (
	TableAccess     = tableAccess
	TableReads      = tableReads
	SequenceAccess  = sequenceAccess
	FunctionCallers = functionCallers
)
