import type { MachineForm } from './form';
import type { Choices } from './useChoices';

export interface FieldsProps {
  form: MachineForm;
  change: (changes: Partial<MachineForm>) => void;
}

export interface ChoiceFieldsProps extends FieldsProps {
  choices: Choices;
}
