import { Group, NumberInput, Select } from '@mantine/core';
import { binaryQuantity, parseQuantity } from '@/api/quantity';

const units = { MiB: 2 ** 20, GiB: 2 ** 30, TiB: 2 ** 40 } as const;
type Unit = keyof typeof units;

interface SizeInputProps {
  label: string;
  description?: string;
  error?: string | undefined;
  /** A quantity of Kubernetes, as `4Gi`; empty while nothing was typed. */
  value: string;
  onChange: (value: string) => void;
  required?: boolean;
}

/** An amount of bytes as a number and a unit. */
export function SizeInput({ label, description, error, value, onChange, required }: SizeInputProps) {
  const bytes = parseQuantity(value);
  const unit = unitOf(bytes);
  const set = (amount: number | string, of: Unit) => onChange(amount === '' ? '' : binaryQuantity(Math.round(Number(amount) * units[of])));
  return (
    <Group gap={6} align="flex-end" wrap="nowrap">
      <NumberInput
        style={{ flex: 1 }}
        label={label}
        description={description}
        error={error}
        required={required ?? false}
        min={0}
        decimalScale={2}
        value={bytes === undefined ? '' : bytes / units[unit]}
        onChange={(amount) => set(amount, unit)}
      />
      <Select w={84} aria-label={`${label}: MiB, GiB, TiB`} data={Object.keys(units)} allowDeselect={false} value={unit} onChange={(next) => set((bytes ?? 0) / units[unit], (next ?? 'GiB') as Unit)} />
    </Group>
  );
}

function unitOf(bytes: number | undefined): Unit {
  if (bytes === undefined || bytes === 0) return 'GiB';
  if (bytes % units.TiB === 0) return 'TiB';
  return bytes % (units.GiB / 4) === 0 ? 'GiB' : 'MiB';
}
