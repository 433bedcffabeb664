# frozen_string_literal: true

require_relative "launching"
require_relative "planted_gems"

# Programs that `memscope requires` starts, and that load gems of known cost.
module RequiredPrograms
  include Launching

  # By how much objects' bytes may differ from one run to the next: from Ruby 3.3 on, by slots at the ends of two pages.
  PAGES = RUBY_VERSION < "3.3" ? 0 : 2 * 65_536

  def setup
    super
    @load_path = PlantedGems.plant(directory)
  end

  def requires(*options, script, preload: nil)
    launch("requires", *options, "--", *RUBY, *@load_path, "-e", script, preload: preload)
  end

  def reading(*options, script, preload: nil)
    ran = requires("--json", *options, script, preload: preload)

    assert_exit 0, ran
    Memscope::Requires.from_json(ran.err.lines.last)
  end

  def gem(reading, name) = reading.gems.find { |gem| gem.name == name }
end
