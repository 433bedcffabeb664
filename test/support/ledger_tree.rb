# frozen_string_literal: true

# A ledger from its JSON, as paths ("malloc/main_heap") and bytes. Does not use memscope's own value objects, so that
# tests do not rely on the code under test.
class LedgerTree
  attr_reader :ledger, :rows

  def initialize(ledger)
    @ledger = ledger
    @rows = {}
    index(ledger.fetch("rows"), [])
  end

  def rss_bytes
    ledger.fetch("rss_bytes")
  end

  # 0 for a row that does not exist: a process without fibers needs no row for them.
  def bytes(path)
    rows.dig(path, "bytes") || 0
  end

  # {path => its rise since the earlier ledger}, for every row of either.
  def changes_since(earlier)
    (rows.keys | earlier.rows.keys).to_h { |path| [path, bytes(path) - earlier.bytes(path)] }
  end

  # One line for every row that its children do not sum to.
  def gaps
    levels = rows.transform_values { |row| [row["bytes"], row["children"].to_a] }
                 .reject { |_, (_, children)| children.empty? }
                 .merge("the RSS" => [rss_bytes, ledger["rows"]])
    levels.filter_map do |path, (whole, parts)|
      sum = parts.sum { |row| row["bytes"] }
      "#{path} is #{whole}, its rows sum to #{sum}" unless sum == whole
    end
  end

  def to_s
    rows.map { |path, row| "#{row['bytes'].to_s.rjust(14)}  #{path}" }.unshift("RSS #{rss_bytes}").join("\n")
  end

  private

  def index(rows, above)
    rows.each do |row|
      path = [*above, row.fetch("id")]
      @rows[path.join("/")] = row
      index(row["children"].to_a, path)
    end
  end
end
