package temporalx

import (
	"context"
	"errors"

	commonpb "go.temporal.io/api/common/v1"
	sdkpb "go.temporal.io/api/sdk/v1"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/slipway-cloud/slipway/internal/temporalx/payloadcodec"
)

// NewDataConverter returns the data converter of every client and worker. A nil codec encrypts and
// decrypts nothing.
//
// The texts that an operator reads in Temporal's own tools stay readable without the codec server:
// the summaries and details that a program sets on workflows, activities and timers, and the
// current details. They hold no secret. All other payloads are encrypted.
func NewDataConverter(codec *payloadcodec.Codec) converter.DataConverter {
	if codec == nil {
		return converter.GetDefaultDataConverter()
	}
	// The first use of another process's key asks the database; that is no deadlock.
	return workflow.DataConverterWithoutDeadlockDetection(&dataConverter{
		DataConverter: converter.NewCodecDataConverter(converter.GetDefaultDataConverter(), codec),
	})
}

// newFailureConverter encrypts messages and stack traces of failures too.
func newFailureConverter(codec *payloadcodec.Codec) converter.FailureConverter {
	return temporal.NewDefaultFailureConverter(temporal.DefaultFailureConverterOptions{
		DataConverter: NewDataConverter(codec), EncodeCommonAttributes: codec.Encrypts(),
	})
}

// dataConverter decides what is encrypted, and what happens to a workflow whose payload cannot be
// decrypted.
type dataConverter struct {
	converter.DataConverter
	inWorkflow bool
}

// ToPayload implements converter.DataConverter. The SDK passes summaries and details as a string.
func (d *dataConverter) ToPayload(value any) (*commonpb.Payload, error) {
	if _, is := value.(string); is {
		return converter.GetDefaultDataConverter().ToPayload(value)
	}
	return d.DataConverter.ToPayload(value)
}

// ToPayloads implements converter.DataConverter. The SDK supplies the current details as a raw
// value.
func (d *dataConverter) ToPayloads(values ...any) (*commonpb.Payloads, error) {
	if len(values) == 1 && isWorkflowMetadata(values[0]) {
		return converter.GetDefaultDataConverter().ToPayloads(values...)
	}
	return d.DataConverter.ToPayloads(values...)
}

func isWorkflowMetadata(value any) bool {
	raw, is := value.(converter.RawValue)
	if !is {
		return false
	}
	name := (&sdkpb.WorkflowMetadata{}).ProtoReflect().Descriptor().FullName()
	return string(raw.Payload().GetMetadata()[converter.MetadataMessageType]) == string(name)
}

// FromPayload implements converter.DataConverter.
func (d *dataConverter) FromPayload(p *commonpb.Payload, value any) error {
	return d.checked(d.DataConverter.FromPayload(p, value))
}

// FromPayloads implements converter.DataConverter.
func (d *dataConverter) FromPayloads(p *commonpb.Payloads, values ...any) error {
	return d.checked(d.DataConverter.FromPayloads(p, values...))
}

// checked panics in a workflow when a payload cannot be decrypted. An error would fail the
// workflow, or would look like a failed stage; a panic fails the workflow task alone, and Temporal
// repeats it until the key can be read.
func (d *dataConverter) checked(err error) error {
	if d.inWorkflow && errors.Is(err, payloadcodec.ErrCannotDecrypt) {
		panic(err)
	}
	return err
}

// WithWorkflowContext implements converter.ContextAware.
func (d *dataConverter) WithWorkflowContext(workflow.Context) converter.DataConverter {
	return &dataConverter{d.DataConverter, true}
}

// WithContext implements converter.ContextAware.
func (d *dataConverter) WithContext(context.Context) converter.DataConverter { return d }
