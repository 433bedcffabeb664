# frozen_string_literal: true

require "fileutils"

# Gems of known cost, as directories that RubyGems need not know: a gem's name is in its path.
module PlantedGems
  SLOT_BYTES = GC::INTERNAL_CONSTANTS.values_at(:BASE_SLOT_SIZE, :RVALUE_SIZE, :SLOT_SIZE).compact.first || 40
  OBJECTS = (3 << 20) / SLOT_BYTES
  # Arrays and Strings whose blocks are size classes of jemalloc too, and too large for the transient heap of Ruby
  # before 3.3. `heavy` costs 3 MiB of objects and 2 MiB of malloc.
  HEAVY = <<~RUBY.freeze
    require "light"
    module Heavy
      LISTS = [*[8190] * #{OBJECTS / 8190}, #{OBJECTS % 8190}].map { |count| Array.new(count) { Object.new } }
      left = (2 << 20) - LISTS.sum { |list| (list.size * 8) + 16 }
      TEXTS = Array.new(left / 65_536) { "x" * 65_519 } << ("y" * (left % 65_536))
    end
  RUBY
  LIGHT = <<~RUBY
    module Light
      autoload :Late, "light/late"
      TEXT = "x" * 500_000
    end
  RUBY
  LATE = 'module Light; Late = "x" * 300_000; end'
  # Bytes of objects and of malloc.
  HEAVY_BYTES = 5 << 20

  # @param directory [String]
  # @return [Array<String>] options of Ruby for the load path
  def self.plant(directory)
    { "gems/heavy-1.0/lib/heavy.rb" => HEAVY, "gems/light-2.0/lib/light.rb" => LIGHT,
      "gems/light-2.0/lib/light/late.rb" => LATE }.map do |name, text|
      path = File.join(directory, name)
      FileUtils.mkdir_p(File.dirname(path))
      File.write(path, text)
      "-I#{path[%r{.*/lib}]}"
    end.uniq
  end
end
